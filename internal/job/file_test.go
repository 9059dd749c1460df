package job_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// Case 18 at the endpoint: what is written is read back with its mode, also over an existing file, under both spellings
// of the root, with bounded reads.
func TestCase18FilesAreWrittenAndReadThroughTheEndpoint(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "true"), 0)
	ctx := t.Context()
	data := bytes.Repeat([]byte("0123456789"), 1000)
	written, err := h.bus.FileWrite(ctx, tenant, nil, bus.FileWriteParams{ConversationID: "c", Path: "new/folder/f"}, data)
	if err != nil || written.Size != int64(len(data)) || written.Path != "/workspace/new/folder/f" {
		t.Fatalf("got %+v, %v", written, err)
	}
	if _, err := h.bus.FileWrite(ctx, tenant, nil, bus.FileWriteParams{ConversationID: "c", Path: "new/folder/f", Mode: "0600"}, data); err != nil {
		t.Fatal(err)
	}
	got, err := h.bus.FileRead(ctx, tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "/workspace/new/folder/f"})
	if err != nil || !bytes.Equal(got.Data, data) || got.Mode != "0600" || got.Truncated {
		t.Fatalf("got %d bytes, mode %s, truncated %v, %v", len(got.Data), got.Mode, got.Truncated, err)
	}
	got, err = h.bus.FileRead(ctx, tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "./new/folder/f", Offset: 5, MaxBytes: 10})
	if err != nil || string(got.Data) != "5678901234" || !got.Truncated || got.Size != int64(len(data)) {
		t.Errorf("a piece: %q, truncated %v, size %d, %v", got.Data, got.Truncated, got.Size, err)
	}
	// A sleeping VM is woken.
	if err := h.inst.Emulator().Cold(h.name(t, "c")); err != nil {
		t.Fatal(err)
	}
	if _, err = h.bus.FileRead(ctx, tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "new/folder/f"}); err != nil {
		t.Errorf("a read from a sleeping Sprite: %v", err)
	}
}

// Paths that lead out of the workspace are refused however they are spelt, links included, and nothing is touched.
func TestAPathThatLeadsOutIsRefused(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "ln -s /etc out; ln -s /home/sprite/x dangling; mkdir in; ln -s in link; echo inside >in/f"), 0)
	for _, path := range []string{"../etc/passwd", "/etc/passwd", "a/../../etc/passwd", "/workspace/../etc/passwd", "out/hostname", "out", "dangling"} {
		_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: path})
		if got := endpointSaid(t, err); got.reason != plan.ReasonPathEscape {
			t.Errorf("read %q: %+v", path, got)
		}
		_, err = h.bus.FileWrite(t.Context(), tenant, nil, bus.FileWriteParams{ConversationID: "c", Path: path}, []byte("x"))
		if got := endpointSaid(t, err); got.reason != plan.ReasonPathEscape {
			t.Errorf("write %q: %+v", path, got)
		}
	}
	if n := h.inst.Emulator().Count("fs.*", ""); n != 0 {
		t.Errorf("%d file calls for refused paths", n)
	}
	if got, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "link/f"}); err != nil || string(got.Data) != "inside\n" {
		t.Errorf("a link inside: %v", err)
	}
	_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "a\x00b"})
	if got := endpointSaid(t, err); got.reason != plan.ReasonPathEscape && got.reason != plan.ReasonInvalidRequest {
		t.Errorf("a NUL: %+v", got)
	}
}

// Each way to fail has its own answer: only a 404 is "not found".
func TestFileFailuresAreToldApart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		fault  emulator.Fault
		reason plan.Reason
	}{
		"refused token": {emulator.Fault{Do: emulator.FaultStatus, Status: 401}, plan.ReasonMisconfigured},
		"rate limited":  {emulator.Fault{Do: emulator.FaultStatus, Status: 429, Headers: map[string]string{"Retry-After": "9"}}, plan.ReasonRateLimited},
		"broken":        {emulator.Fault{Do: emulator.FaultStatus, Status: 503}, plan.ReasonProvisionFailed},
		"dropped":       {emulator.Fault{Do: emulator.FaultDrop}, plan.ReasonProvisionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t)
			exited(t, h.sh(t, "c", "echo x >f"), 0)
			want.fault.Route = "fs.*"
			h.fault(t, want.fault)
			_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "f"})
			if got := endpointSaid(t, err); got.reason != want.reason {
				t.Errorf("got %+v, want %s", got, want.reason)
			}
		})
	}
}

// Case 30 at the endpoint: who is denied reaches nothing, however warm the sandbox is.
func TestCase30ADeniedFileCallReachesNothing(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "echo x >f"), 0)
	calls, m := len(h.inst.Emulator().Calls()), h.leases(t)
	h.free(t, m)
	revision := h.link(t, "c").Revision
	header := grant{"sub": "eve", "verdict": plan.ReasonNoDriveAccess}.header(t)
	_, err := h.bus.FileRead(t.Context(), tenant, header, bus.FileReadParams{ConversationID: "c", Path: "f"})
	if got := endpointSaid(t, err); got.reason != plan.ReasonNoDriveAccess {
		t.Errorf("got %+v", got)
	}
	r := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, grant{"sub": "eve", "verdict": plan.ReasonNoDriveAccess}).result()
	outcome(t, r, plan.OutcomeDenied, plan.ReasonNoDriveAccess)
	if n := len(h.inst.Emulator().Calls()) - calls; n != 0 {
		t.Errorf("%d calls", n)
	}
	if l := h.link(t, "c"); l.Revision != revision {
		t.Error("the link was written")
	}
	if r.Run.Lease != "" || len(h.held(t, m)) != 0 {
		t.Error("a lease was taken")
	}
}

func TestAFileCallsGrantMayBeBoundToItsBody(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "echo hi >f"), 0)
	bound := func(body []byte) bus.Header {
		sum := sha256.Sum256(body)
		return grant{"sub": "dev", "conversation": "c", "req": hex.EncodeToString(sum[:])}.header(t)
	}
	read := bus.FileReadParams{V: 1, ConversationID: "c", Path: "f"}
	asked, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.bus.FileRead(t.Context(), tenant, bound(asked), read); err != nil || string(got.Data) != "hi\n" {
		t.Errorf("read: %+v, %v", got, err)
	}
	write := bus.FileWriteParams{ConversationID: "c", Path: "f"}
	if _, err := h.bus.FileWrite(t.Context(), tenant, bound([]byte("new")), write, []byte("new")); err != nil {
		t.Errorf("write: %v", err)
	}
	_, err = h.bus.FileWrite(t.Context(), tenant, bound([]byte("new")), write, []byte("other"))
	if got := endpointSaid(t, err); got.reason != plan.ReasonInvalidRequest {
		t.Errorf("another body: %+v", got)
	}
	read.Path = "g"
	_, err = h.bus.FileRead(t.Context(), tenant, bound(asked), read)
	if got := endpointSaid(t, err); got.reason != plan.ReasonInvalidRequest {
		t.Errorf("another path: %+v", got)
	}
}

// What is wrong with a path is said: a folder, a line end, a name that is too long, what JSON could not carry.
func TestAFileCallSaysWhatIsWrongWithItsPath(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "mkdir folder"), 0)
	for path, want := range map[string]struct {
		reason plan.Reason
		says   string
	}{
		"folder":                 {plan.ReasonInvalidRequest, "names a folder"},
		".":                      {plan.ReasonInvalidRequest, "workspace itself"},
		"a\nb":                   {plan.ReasonInvalidRequest, "control character"},
		"%2e%2e/x":               {plan.ReasonPathEscape, "percent-decoded"},
		strings.Repeat("n", 300): {plan.ReasonInvalidRequest, "longer than 255 bytes"},
		"a\ufffd":                {plan.ReasonInvalidRequest, "not UTF-8"},
	} {
		_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: path})
		if got := endpointSaid(t, err); got.reason != want.reason || !strings.Contains(err.Error(), want.says) {
			t.Errorf("read %.20q: %s, %v", path, got.reason, err)
		}
		_, err = h.bus.FileWrite(t.Context(), tenant, nil, bus.FileWriteParams{ConversationID: "c", Path: path}, []byte("x"))
		if got := endpointSaid(t, err); got.reason != want.reason || !strings.Contains(err.Error(), want.says) {
			t.Errorf("write %.20q: %s, %v", path, got.reason, err)
		}
	}
	if _, err := h.bus.FileWrite(t.Context(), tenant, nil, bus.FileWriteParams{ConversationID: "c", Path: "a\xff"}, []byte("x")); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// Case 15 at the endpoint: a file call that never answers ends by itself, with its own reason, and gives its slot back.
func TestCase15AFileCallThatHangsEndsAndKeepsNoSlot(t *testing.T) {
	t.Parallel()
	h := build(t, eachApp(func(_ int, a *job.AppConfig) {
		a.Sprites = func(c *sprites.Config) { c.CallTimeout = 2 * time.Second }
	}))
	exited(t, h.sh(t, "c", "echo x >f"), 0)
	h.fault(t, emulator.Fault{Route: "fs.*", Do: emulator.FaultHang})
	_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "f"})
	if got := endpointSaid(t, err); got.reason != plan.ReasonProvisionFailed {
		t.Errorf("got %+v", got)
	}
	if n := h.inst.Emulator().Count("fs.*", ""); n != 2 {
		t.Errorf("%d file calls, want one and its retry", n)
	}
	h.free(t, h.leases(t))
}
