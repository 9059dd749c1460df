package bus_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// files is a FileHandler that keeps files in memory.
type files struct {
	mu    sync.Mutex
	data  map[string][]byte
	calls []bus.FileCall
	block chan struct{} // closed to let reads go on; nil never blocks
	begun chan struct{} // one token per read that began
}

var errNobodyForesaw = errors.New("token hunter2 leaked")

func (f *files) ReadFile(ctx context.Context, call bus.FileCall, p bus.FileReadParams) (*bus.FileContent, error) {
	if f.block != nil {
		f.begun <- struct{}{}
		select {
		case <-f.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	switch p.Path {
	case "panic":
		panic("on purpose")
	case "broken":
		return nil, errNobodyForesaw
	case "busy":
		return nil, &bus.EndpointError{Reason: plan.ReasonRateLimited, Message: "line one\r\nPUB evil", Retryable: true, RetryAfter: 1500 * time.Millisecond}
	}
	data, ok := f.data[call.Tenant+"/"+p.Path]
	if !ok {
		return nil, bus.NewEndpointError(plan.ReasonNotFound, "")
	}
	whole := int64(len(data))
	data = data[min(p.Offset, whole):]
	cut := int64(len(data)) > p.MaxBytes
	if cut {
		data = data[:p.MaxBytes]
	}
	return &bus.FileContent{Data: data, Size: whole, Mode: "0644", Truncated: cut}, nil
}

func (f *files) WriteFile(_ context.Context, call bus.FileCall, p bus.FileWriteParams, data []byte) (*bus.FileWritten, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data[call.Tenant+"/"+p.Path] = bytes.Clone(data)
	sum := sha256.Sum256(data)
	return &bus.FileWritten{Path: p.Path, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// serve runs the endpoints until the test ends and returns the means to end them earlier.
func serve(t *testing.T, b *bus.Bus, cfg bus.EndpointConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	cfg.Ready = func() { close(ready) }
	go func() { done <- b.Serve(ctx, cfg) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("serve: %v", err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func reasonOf(t *testing.T, err error) *bus.EndpointError {
	t.Helper()
	var e *bus.EndpointError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an EndpointError", err)
	}
	return e
}

func TestFilesTravelByteForByteAndWithTheirHeaders(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	f := &files{data: map[string][]byte{}}
	serve(t, r.bus, bus.EndpointConfig{Files: f})
	content := bytes.Repeat([]byte{0, 1, 2, 0xff, '\r', '\n'}, 1000)
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, "grant")
	written, err := r.bus.FileWrite(ctx, "t", hdr, bus.FileWriteParams{ConversationID: "c", Path: "a b/ü.bin", Mode: "0600"}, content)
	if err != nil || written.Size != int64(len(content)) || len(written.SHA256) != 64 {
		t.Fatalf("got %+v, %v", written, err)
	}
	got, err := r.bus.FileRead(ctx, "t", hdr, bus.FileReadParams{ConversationID: "c", Path: "a b/ü.bin"})
	if err != nil || !bytes.Equal(got.Data, content) || got.Size != int64(len(content)) || got.Mode != "0644" || got.Truncated {
		t.Fatalf("got %d bytes, %v", len(got.Data), err)
	}
	part, err := r.bus.FileRead(ctx, "t", hdr, bus.FileReadParams{ConversationID: "c", Path: "a b/ü.bin", Offset: 6, MaxBytes: 3})
	if err != nil || string(part.Data) != "\x00\x01\x02" || !part.Truncated || part.Size != int64(len(content)) {
		t.Fatalf("got %+v, %v", part, err)
	}
	if call := f.calls[0]; call.Tenant != "t" || call.Header.Get(bus.HeaderGrant) != "grant" || call.Received.IsZero() {
		t.Fatalf("the handler got %+v", call)
	}
	if _, err := r.bus.FileRead(ctx, "other", hdr, bus.FileReadParams{ConversationID: "c", Path: "a b/ü.bin"}); reasonOf(t, err).Reason != plan.ReasonNotFound {
		t.Fatal("another tenant reads the file")
	}
	if _, err := r.bus.FileWrite(ctx, "t", hdr, bus.FileWriteParams{ConversationID: "c", Path: "big"}, make([]byte, 1<<20)); reasonOf(t, err).Reason != plan.ReasonContentTooLarge ||
		!strings.Contains(err.Error(), fmt.Sprint(r.bus.MaxFileBytes())) {
		t.Fatalf("the limit is not named: %v", err)
	}
}

// case 61: each failure has its code, its sentence, and says whether asking again helps; nothing unforeseen leaks.
func TestCase61EndpointErrorsAreCodedAndTellNothingUnforeseen(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{Files: &files{data: map[string][]byte{}}})
	for path, want := range map[string]bus.EndpointError{
		"none":   {Reason: plan.ReasonNotFound, Message: plan.ReasonNotFound.Sentence()},
		"broken": {Reason: plan.ReasonError, Message: plan.ReasonError.Sentence()},
		"panic":  {Reason: plan.ReasonError, Message: plan.ReasonError.Sentence()},
		"busy":   {Reason: plan.ReasonRateLimited, Message: "line one  PUB evil", Retryable: true, RetryAfter: 1500 * time.Millisecond},
		"":       {Reason: plan.ReasonInvalidRequest, Message: "path must be 1 to 4096 bytes"},
	} {
		_, err := r.bus.FileRead(ctx, "t", nil, bus.FileReadParams{ConversationID: "c", Path: path})
		if got := reasonOf(t, err); *got != want {
			t.Errorf("%q: got %+v, want %+v", path, *got, want)
		}
	}
	for subject, body := range map[string]string{
		"sandbox.file.read.t": `{"v":1,"conversation_id":"c","path":"a","user":"root"}`, "sandbox.history.t": `{"v":1,"job_id":"a.b"}`,
		"sandbox.jobs.t": `{"v":1,"limit":501}`, "sandbox.call.exec.t": `{"v":1,"job_id":"j","conversation_id":"c"}`, "sandbox.file.write.t": "",
	} {
		msg, err := r.raw.RequestWithContext(ctx, subject, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		code := plan.Reason(msg.Header.Get(micro.ErrorCodeHeader))
		if len(msg.Data) != 0 || !code.Valid() || msg.Header.Get(micro.ErrorHeader) == "" || msg.Header.Get(bus.HeaderRetryable) != "false" {
			t.Errorf("%s: got %q %v", subject, msg.Data, msg.Header)
		}
	}
}

func TestWithoutAServerTheClientSaysThatNobodyServes(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	if _, err := r.bus.FileRead(ctx, "t", nil, bus.FileReadParams{}); !errors.Is(err, bus.ErrNoReply) {
		t.Fatalf("file: %v", err)
	}
	if _, err := r.bus.JobsClient(ctx, "t", bus.JobsRequest{}); !errors.Is(err, bus.ErrNoReply) {
		t.Fatalf("jobs: %v", err)
	}
	if _, _, _, err := r.bus.HistoryClient().History(ctx, key("j"), 1, 0, 0); !errors.Is(err, bus.ErrNoReply) {
		t.Fatalf("history: %v", err)
	}
	call, err := r.bus.CallExec(ctx, "t", nil, []byte(goodExec))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	if _, err := call.Next(ctx); !errors.Is(err, bus.ErrNoReply) {
		t.Fatalf("call: %v", err)
	}
}

// case 85: an endpoint publishes to inboxes only: not to queues, the system, other tenants or wildcards.
func TestCase85AReplySubjectThatIsNoInboxGetsNothing(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	f := &files{data: map[string][]byte{"t/a": []byte("x")}}
	serve(t, r.bus, bus.EndpointConfig{Files: f})
	everything, err := r.raw.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"v":1,"conversation_id":"c","path":"a"}`)
	evil := []string{"sandbox.exec.victim", "sandbox.event.t.j.0.state", "$JS.API.STREAM.DELETE.SANDBOX", "$SYS.x", "_INBOX_victim.x",
		"_INBOXx.y", "_INBOX", "sandbox.reply.t.j.0.state", "_INBOX_t"}
	for _, reply := range evil {
		if err := r.raw.PublishRequest("sandbox.file.read.t", reply, body); err != nil {
			t.Fatal(err)
		}
	}
	for _, reply := range []string{"_INBOX.good.1", "_INBOX_t.good.1", "_INBOX_web.good.1"} {
		if err := r.raw.PublishRequest("sandbox.file.read.t", reply, body); err != nil {
			t.Fatal(err)
		}
		for {
			msg, err := everything.NextMsgWithContext(ctx)
			if err != nil {
				t.Fatalf("%s: %v", reply, err)
			}
			if slices.Contains(evil, msg.Subject) {
				t.Fatalf("published to %s", msg.Subject)
			}
			if msg.Subject == reply {
				break
			}
		}
	}
	stream, err := r.js.Stream(ctx, bus.StreamSandbox)
	if err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Fatalf("the queue holds something: %v", err)
	}
}

// case 84: tenants that are no tokens build no subject on the client's side either.
func TestCase84ClientsRefuseTenantsThatAreNoToken(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	for _, tenant := range []string{"", "*", ">", "a.b", "a b", "a\r\nPUB"} {
		_, read := r.bus.FileRead(ctx, tenant, nil, bus.FileReadParams{})
		_, write := r.bus.FileWrite(ctx, tenant, nil, bus.FileWriteParams{}, nil)
		_, call := r.bus.CallExec(ctx, tenant, nil, nil)
		_, jobs := r.bus.JobsClient(ctx, tenant, bus.JobsRequest{})
		_, list := r.bus.JobsList(ctx, tenant, bus.JobsRequest{})
		_, _, _, history := r.bus.HistoryClient().History(ctx, bus.RunKey{Tenant: tenant, Job: "j"}, 1, 0, 0)
		for _, err := range []error{read, write, call, jobs, list, history} {
			if !errors.Is(err, bus.ErrInvalid) {
				t.Errorf("%q: %v", tenant, err)
			}
		}
	}
}

func TestRequestsBeyondTheSlotsAreRefusedAtOnceAsRetryable(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	f := &files{data: map[string][]byte{"t/a": nil}, block: make(chan struct{}), begun: make(chan struct{}, 2)}
	serve(t, r.bus, bus.EndpointConfig{Files: f, MaxRequests: 1})
	read := func() error {
		_, err := r.bus.FileRead(ctx, "t", nil, bus.FileReadParams{ConversationID: "c", Path: "a"})
		return err
	}
	first := make(chan error, 1)
	go func() { first <- read() }()
	<-f.begun
	if e := reasonOf(t, read()); e.Reason != plan.ReasonWorkerUnavailable || !e.Retryable || e.RetryAfter == 0 {
		t.Fatalf("got %+v", e)
	}
	close(f.block)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

func TestStoppingAnswersWhatIsInFlight(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	f := &files{block: make(chan struct{}), begun: make(chan struct{}, 1)}
	stop := serve(t, r.bus, bus.EndpointConfig{Files: f})
	answer := make(chan error, 1)
	go func() {
		_, err := r.bus.FileRead(ctx, "t", nil, bus.FileReadParams{ConversationID: "c", Path: "a"})
		answer <- err
	}()
	<-f.begun
	stop()
	if e := reasonOf(t, <-answer); e.Reason != plan.ReasonWorkerUnavailable || !e.Retryable {
		t.Fatalf("got %+v", e)
	}
}

func TestTheServiceIsListedWithItsStatistics(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{Version: "1.2.3", Metadata: map[string]string{"worker": "w1"}, Stats: func() any { return map[string]int{"slots": 16} }})
	msg, err := r.raw.RequestWithContext(ctx, "$SRV.STATS.wakebus-worker", nil)
	if err != nil {
		t.Fatal(err)
	}
	var stats micro.Stats
	if err := json.Unmarshal(msg.Data, &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Version != "1.2.3" || stats.Metadata["worker"] != "w1" || len(stats.Endpoints) != 3 || string(stats.Endpoints[0].Data) != `{"slots":16}` {
		t.Fatalf("got %s", msg.Data)
	}
	if err := r.bus.Serve(ctx, bus.EndpointConfig{MaxCalls: -1, InboxPrefixes: []string{"sandbox"}}); !errors.Is(err, bus.ErrInvalid) ||
		!strings.Contains(err.Error(), "MaxCalls") || !strings.Contains(err.Error(), "prefix") {
		t.Fatalf("not every problem is named: %v", err)
	}
}

// play is a worker that claims the job, prints and ends.
func play(t *testing.T, b *bus.Bus, k bus.RunKey, body []byte, lines int) {
	t.Helper()
	sum := sha256.Sum256(body)
	c, err := b.Claim(within(t), k, "w.1", bus.Claim{Request: hex.EncodeToString(sum[:]), Record: bus.Record{Queued: 1, Kind: bus.KindExec,
		Actor: &bus.Actor{Tenant: k.Tenant, User: "ann", Tier: plan.TierFree, Conversation: "c-1"}}})
	if err != nil {
		t.Errorf("claim: %v", err)
		return
	}
	defer c.Close()
	if lines > 0 {
		if err := c.Dialing(within(t), bus.DialingBody{Try: 1}); err != nil {
			t.Errorf("dialing: %v", err)
		}
	}
	for i := range lines {
		if err := errors.Join(c.Write(within(t), bus.EventStdout, fmt.Appendf(nil, "line %d\n", i)), c.Flush(within(t))); err != nil {
			t.Errorf("write: %v", err)
		}
	}
	code := 7
	if err := c.Result(within(t), bus.ResultBody{Outcome: plan.OutcomeExited, ExitCode: &code}); err != nil {
		t.Errorf("result: %v", err)
	}
}

func readCall(t *testing.T, call *bus.Call) (out string, last bus.Event) {
	t.Helper()
	seq := uint64(0)
	for {
		e, err := call.Next(within(t))
		if errors.Is(err, io.EOF) {
			return out, last
		}
		if err != nil {
			t.Fatal(err)
		}
		if seq++; e.Seq != seq {
			t.Fatalf("event %d came as number %d", e.Seq, seq)
		}
		if e.Kind == bus.EventStdout {
			out += string(e.Data)
		}
		last = e
	}
}

func TestACallQueuesTheCommandAndRelaysItsEventsInOrderToTheEnd(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{})
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, "grant")
	hdr.Set("X-Other", "no")
	call, err := r.bus.CallExec(ctx, "t", hdr, []byte(goodExec))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	msg := nextQueued(t, r)
	if !bytes.Equal(msg.Data, []byte(goodExec)) || msg.Header.Get(bus.HeaderGrant) != "grant" || msg.Header.Get("X-Other") != "" {
		t.Fatalf("queued %q %v", msg.Data, msg.Header)
	}
	k := bus.RunKey{Tenant: "t", Job: "job-1"}
	play(t, r.bus, k, msg.Data, 20)
	out, last := readCall(t, call)
	if strings.Count(out, "\n") != 20 || last.Kind != bus.EventResult || last.Key != k {
		t.Fatalf("got %q, %v", out, last.Kind)
	}
	if _, err := call.Next(ctx); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
	// The same id again is answered from what is recorded, and nothing is queued.
	again, err := r.bus.CallExec(ctx, "t", nil, []byte(goodExec))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if same, last := readCall(t, again); same != out || last.Kind != bus.EventResult {
		t.Fatalf("got %q", same)
	}
	other, err := r.bus.CallExec(ctx, "t", nil, []byte(strings.Replace(goodExec, "hi", "ho", 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Next(ctx); reasonOf(t, err).Reason != plan.ReasonInvalidRequest {
		t.Fatalf("an id with another body: %v", err)
	}
	stream, err := r.js.Stream(ctx, bus.StreamSandbox)
	if err != nil || stream.CachedInfo().State.LastSeq != 1 {
		t.Fatalf("queued more than once: %v", err)
	}
}

// nextQueued waits until SANDBOX holds its first message.
func nextQueued(t *testing.T, r *rig) *nats.Msg {
	t.Helper()
	cons, err := r.js.Consumer(within(t), bus.StreamSandbox, "exec")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := cons.Next()
	if err != nil {
		t.Fatal(err)
	}
	return &nats.Msg{Subject: msg.Subject(), Data: msg.Data(), Header: msg.Headers()}
}

func TestARelayEndsWhenItsCallerHasLeft(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{MaxCalls: 1})
	call, err := r.bus.CallExec(ctx, "t", nil, []byte(goodExec))
	if err != nil {
		t.Fatal(err)
	}
	body := nextQueued(t, r).Data
	call.Close()
	sum := sha256.Sum256(body)
	c, err := r.bus.Claim(ctx, bus.RunKey{Tenant: "t", Job: "job-1"}, "w.1", bus.Claim{Request: hex.EncodeToString(sum[:])})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Dialing(ctx, bus.DialingBody{Try: 1}); err != nil {
		t.Fatal(err)
	}
	// The one slot comes free although the job goes on: at some time another call is not refused as busy.
	for {
		if err := c.Write(ctx, bus.EventStdout, []byte("x")); err != nil {
			t.Fatal(err)
		}
		probe, err := r.bus.CallExec(ctx, "t", nil, []byte(strings.Replace(goodExec, "hi", "ho", 1)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = probe.Next(ctx)
		probe.Close()
		if reasonOf(t, err).Reason == plan.ReasonInvalidRequest {
			return
		}
	}
}

func TestACallThatTheQueueRefusesSaysSo(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t, func(c *bus.Config) { c.TenantBacklog = 1 }), within(t)
	serve(t, r.bus, bus.EndpointConfig{})
	if _, err := r.bus.Publish(ctx, bus.KindExec, "t", nil, []byte(goodExec)); err != nil {
		t.Fatal(err)
	}
	call, err := r.bus.CallExec(ctx, "t", nil, []byte(strings.Replace(goodExec, "job-1", "job-2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	_, err = call.Next(ctx)
	if e := reasonOf(t, err); e.Reason != plan.ReasonRateLimited || !e.Retryable || e.RetryAfter == 0 {
		t.Fatalf("got %+v", e)
	}
}

func TestHistoryByTheEndpointIsHistoryByTheStreams(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{})
	k := key("j")
	play(t, r.bus, k, []byte("body"), 300) // more than one page
	var got []bus.Event
	for from := uint64(1); ; {
		events, last, more, err := r.bus.HistoryClient().History(ctx, k, from, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, events...)
		if !more {
			break
		}
		from = last + 1
	}
	want := history(t, r.bus, k)
	if len(got) != len(want) || len(want) < 302 {
		t.Fatalf("got %d events, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !g.Time.Equal(w.Time) || g.Seq != w.Seq || g.Kind != w.Kind || g.StreamSeq != w.StreamSeq || !bytes.Equal(g.Data, w.Data) ||
			g.StdoutOffset != w.StdoutOffset || g.Owner != w.Owner || g.Key != w.Key {
			t.Fatalf("event %d: got %+v, want %+v", i, g, w)
		}
	}
	if events, last, more, err := r.bus.HistoryClient().History(ctx, key("none"), 1, 0, 0); err != nil || len(events)+int(last) != 0 || more {
		t.Fatalf("a run nobody claimed: %v %d %v, %v", events, last, more, err)
	}
}

func TestJobsAreListedByStateAndConversationNewestFirst(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	serve(t, r.bus, bus.EndpointConfig{})
	play(t, r.bus, bus.RunKey{Tenant: "t", Job: "done"}, nil, 0)
	claim := func(job, conversation string) *bus.Chain {
		c, err := r.bus.Claim(ctx, bus.RunKey{Tenant: "t", Job: job}, "w.1", bus.Claim{Record: bus.Record{Kind: bus.KindExec,
			Actor: &bus.Actor{Tenant: "t", Conversation: conversation}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	if err := claim("waits", "c-2").Release(ctx, bus.WaitingBody{For: bus.WaitLimit, Until: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := claim("runs", "c-1").Dialing(ctx, bus.DialingBody{Try: 1}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"new", "done"} { // what runs or ended may still be in the queue
		if _, err := r.bus.Publish(ctx, bus.KindExec, "t", nil, []byte(strings.Replace(goodExec, "job-1", job, 1))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.bus.Publish(ctx, bus.KindExec, "t2", nil, []byte(goodExec)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  bus.JobsRequest
		want string
	}{
		{bus.JobsRequest{}, "new runs waits done"}, {bus.JobsRequest{State: bus.JobQueued}, "new waits"}, {bus.JobsRequest{State: bus.JobRunning}, "runs"},
		{bus.JobsRequest{State: bus.JobEnded}, "done"}, {bus.JobsRequest{ConversationID: "c-1"}, "new runs done"}, {bus.JobsRequest{ConversationID: "c-9"}, ""},
		{bus.JobsRequest{Limit: 2}, "new runs"}, {bus.JobsRequest{ConversationID: "c-2", State: bus.JobQueued}, "waits"},
	} {
		answer, err := r.bus.JobsClient(ctx, "t", c.req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range answer.Jobs {
			got = append(got, j.JobID)
		}
		if strings.Join(got, " ") != c.want || answer.Partial {
			t.Errorf("%+v: got %v, want %s", c.req, got, c.want)
		}
	}
	answer, err := r.bus.JobsClient(ctx, "t", bus.JobsRequest{State: bus.JobEnded})
	if err != nil || answer.Jobs[0].Outcome != plan.OutcomeExited || answer.Jobs[0].LastEvent != bus.EventResult || answer.Jobs[0].ConversationID != "c-1" {
		t.Fatalf("got %+v, %v", answer, err)
	}
	answer, err = r.bus.JobsClient(ctx, "t", bus.JobsRequest{ConversationID: "c-2"})
	if err != nil || answer.Jobs[0].WaitsFor != bus.WaitLimit || answer.Jobs[0].State != bus.JobQueued {
		t.Fatalf("got %+v, %v", answer, err)
	}
}

func TestTheCalloutHasAnAnswerOrAnErrorThatIsNoDenial(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	if _, err := r.bus.CanRunCode(ctx, []byte("{}")); !errors.Is(err, bus.ErrNoReply) {
		t.Fatalf("nobody answers: %v", err)
	}
	sub, err := r.raw.Subscribe("authz.can_run_code", func(m *nats.Msg) { _ = m.Respond(append([]byte("re:"), m.Data...)) })
	if err != nil {
		t.Fatal(err)
	}
	if err := r.raw.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := r.bus.CanRunCode(ctx, []byte("q")); err != nil || string(got) != "re:q" {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := r.bus.CanRunCode(ctx, make([]byte, 65<<10)); !errors.Is(err, bus.ErrTooLarge) {
		t.Fatalf("a huge answer: %v", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.raw.SubscribeSync("authz.can_run_code"); err != nil { // listens and never answers
		t.Fatal(err)
	}
	if err := r.raw.Flush(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := r.bus.CanRunCode(short, nil); !errors.Is(err, bus.ErrUnreachable) {
		t.Fatalf("no answer: %v", err)
	}
}

func FuzzParseEndpointBodies(f *testing.F) {
	f.Add([]byte(`{"v":1,"conversation_id":"c","path":"p","mode":"0644"}`))
	f.Add([]byte(`{"v":1,"job_id":"j","run":1,"from_seq":2}`))
	f.Add([]byte(`{"v":1,"state":"queued","limit":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := bus.ParseFileRead(data); err == nil && (!plan.ValidToken(p.ConversationID) || p.Path == "" || p.Offset < 0) {
			t.Fatalf("passed: %+v", p)
		}
		if p, err := bus.ParseFileWrite(data); err == nil && p.Path == "" {
			t.Fatalf("passed: %+v", p)
		}
		if r, err := bus.ParseHistory(data); err == nil && (!plan.ValidToken(r.JobID) || r.Run < 0) {
			t.Fatalf("passed: %+v", r)
		}
		if r, err := bus.ParseJobs(data); err == nil && r.Limit > 500 {
			t.Fatalf("passed: %+v", r)
		}
	})
}
