package emulator_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// detached starts a command that prints to both streams, and leaves it.
func detached(b *bench, script string) string {
	b.t.Helper()
	b.create("one")
	q := command("sh", "-c", script+"; read x; echo end")
	q.Set("stdin", "true")
	q.Set("max_run_after_disconnect", "0")
	r := b.open("one", q)
	id := r.session()
	r.until("mark")
	_ = r.ws.CloseNow()
	return id
}

func (r *run) finish() *run {
	r.send(0, '\n')
	return r.wait()
}

func TestMergedAttachReplaysATailAsStandardOutput(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Attach, c.Scrollback = emulator.AttachMerged, 1000 })
	id := detached(b, `head -c 5000 /dev/zero | tr '\0' x; echo warn >&2; echo mark`)
	r := b.attach("one", id, nil).finish()
	if r.err.Len() != 0 || r.out.Len() > 1100 || !strings.HasSuffix(r.out.String(), "end\n") || !strings.Contains(r.out.String(), "mark") || !strings.Contains(r.out.String(), "warn") {
		t.Fatalf("%d %q, stderr %q", r.out.Len(), r.out.String(), r.err.String())
	}
}

func TestOffsetSkipsWhatWasDelivered(t *testing.T) {
	t.Parallel()
	for _, mode := range []emulator.AttachMode{emulator.AttachExact, emulator.AttachMerged} {
		b := setup(t, func(c *emulator.Config) { c.Attach, c.Offset = mode, true })
		id := detached(b, "printf 0123456789; echo mark")
		_, res, err := b.dial("/v1/sprites/one/exec/"+id, url.Values{"output_offset": {"4"}})
		if err != nil || !strings.Contains(res.Header.Get("X-Sprite-Capabilities"), "output_offset") {
			t.Fatal(err, res)
		}
		r := b.attach("one", id, url.Values{"output_offset": {"4"}})
		r.session()
		if r.info["output_offset"] != float64(4) {
			t.Error(r.info)
		}
		if r.finish(); r.out.String() != "456789mark\nend\n" {
			t.Errorf("%s: %q", mode, r.out.String())
		}
	}
}

func TestWithoutOffsetTheParameterIsIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := detached(b, "printf 0123456789; echo mark")
	if r := b.attach("one", id, url.Values{"output_offset": {"4"}}).finish(); r.out.String() != "0123456789mark\nend\n" {
		t.Errorf("%q", r.out.String())
	}
}

func TestOffsetBehindTheKeptTailBeginsAtTheTail(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Offset, c.Scrollback = true, 2000 })
	id := detached(b, `for i in 1 2 3 4 5 6 7 8; do head -c 1000 /dev/zero; done; echo mark`)
	r := b.attach("one", id, url.Values{"output_offset": {"10"}})
	r.session()
	from, ok := r.info["output_offset"].(float64)
	if !ok || from <= 10 {
		t.Fatal("it does not say where it begins: ", r.info)
	}
	if r.finish(); r.out.Len() != 8005+4-int(from) {
		t.Fatalf("%d bytes from %v", r.out.Len(), from)
	}
}

func TestDetachedCommandIsEndedWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", `trap 'echo term > "$1"; exit' TERM; echo up; while :; do sleep 0.01; done`, "sh", "/workspace/f")
	q.Set("max_run_after_disconnect", "10ms")
	r := b.open("one", q).until("up")
	_ = r.ws.CloseNow()
	b.eventually("ended by TERM", func() bool { return b.sh("one", `cat "$1"`, "/workspace/f").out.String() == "term\n" })
}

func TestSecondClientSeesTheSameAsTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", "echo mark; read x; echo end")
	q.Set("stdin", "true")
	first := b.open("one", q)
	id := first.session()
	first.until("mark")
	second := b.attach("one", id, nil).until("mark")
	second.send(0, '\n')
	if first.wait(); first.out.String() != "mark\nend\n" || second.wait().out.String() != "mark\nend\n" {
		t.Fatalf("%q %q", first.out.String(), second.out.String())
	}
	b.eventually("no socket is left", func() bool { return b.Connections() == 0 })
}

func TestSlowClientHoldsTheCommandBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("sh", "-c", `i=0; while [ $i -lt 20 ]; do head -c 1000000 /dev/zero; i=$((i+1)); done; echo "$i" > "$1"`, "sh", "/workspace/n"))
	r.session()
	// Nothing is read here: the command cannot have come to its end.
	if got := b.sh("one", `cat "$1"`, "/workspace/n").out.String(); got != "" {
		t.Fatal("20 MB went nowhere: ", got)
	}
	if r.wait(); r.out.Len() != 20_000_000 || r.exit != 0 {
		t.Fatal(strconv.Itoa(r.out.Len()), r.exit)
	}
}
