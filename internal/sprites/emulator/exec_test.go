package emulator_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func TestExecKeepsStreamsApartAndTellsTheCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	for _, code := range []int{0, 1, 42, 128, 255} {
		r := b.sh("one", `printf out; printf err >&2; exit "$1"`, itoa(code))
		if r.exit != code || r.out.String() != "out" || r.err.String() != "err" {
			t.Errorf("code %d: got %d %q %q", code, r.exit, r.out.String(), r.err.String())
		}
		if r.frames[0] != "text:session_info" || r.frames[len(r.frames)-1] != "3" {
			t.Errorf("order of frames: %v", r.frames)
		}
	}
}

func TestExecFindsFilesOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", `echo kept > "$1"`, "/workspace/f")
	if r := b.sh("one", `cat "$1"`, "/workspace/f"); r.out.String() != "kept\n" {
		t.Fatalf("got %q, %q", r.out.String(), r.err.String())
	}
}

func TestStdinIsFramedAndEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("cat")
	q.Set("stdin", "true")
	r := b.open("one", q)
	r.send([]byte("\x00ab")...)
	r.send(4)
	if r.wait(); r.out.String() != "ab" || r.exit != 0 {
		t.Fatalf("got %q, %d", r.out.String(), r.exit)
	}
	// Without stdin the command sees its end at once, and [4] does no harm.
	r = b.open("one", command("cat"))
	r.send(4)
	if r.wait(); r.exit != 0 {
		t.Fatalf("exit %d", r.exit)
	}
}

func TestTerminalHasSizeSignalsAndBothExitForms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := url.Values{"cmd": {"sh", "-c", `trap 'echo winch; stty size' WINCH; stty size; echo ready; while :; do read x && break; done; exit 3`}, "tty": {"true"}, "rows": {"30"}, "cols": {"90"}}
	r := b.open("one", q)
	r.until("30 90").until("ready")
	_ = r.ws.Write(b.ctx(), websocket.MessageText, []byte(`{"type":"resize","cols":20,"rows":10}`))
	r.until("10 20")
	r.send('\n')
	r.wait()
	if r.exit != 3 || websocket.CloseStatus(r.lastErr) != websocket.StatusInternalError {
		t.Fatalf("exit %d, %v", r.exit, r.lastErr)
	}
	last := r.text[len(r.text)-1]
	if last["code"] != float64(3) || r.info["tty"] != true {
		t.Fatalf("texts %v", r.text)
	}
}

func TestAttachReplaysEverythingAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", `echo first; echo warn >&2; read x; echo got $x`)
	q.Set("stdin", "true")
	q.Set("max_run_after_disconnect", "0")
	r := b.open("one", q)
	id := r.session()
	r.until("first")
	_ = r.ws.CloseNow()
	a := b.attach("one", id, nil)
	a.send([]byte("\x00more\n")...)
	a.wait()
	if a.frames[0] != "text:session_info" || a.out.String() != "first\ngot more\n" || a.err.String() != "warn\n" || a.exit != 0 {
		t.Fatalf("%v %q %q %d", a.frames, a.out.String(), a.err.String(), a.exit)
	}
	if _, res, err := b.dial("/v1/sprites/one/exec/"+id, nil); err == nil || res.StatusCode != 404 {
		t.Fatalf("attach after the end: %v", err)
	}
}

func TestKillEndsTheGroupAndTellsHow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("sh", "-c", `sleep 1000 & echo up; wait`))
	id := r.session()
	r.until("up")
	code, body := b.call("POST", "/v1/sprites/one/exec/"+id+"/kill?signal=KILL&timeout=10s", nil)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if code != 200 || len(lines) != 3 || !strings.Contains(lines[0], `"signal":"SIGKILL"`) || !strings.Contains(lines[2], `"exit_code":137`) {
		t.Fatalf("%d %s", code, body)
	}
	if r.wait(); r.exit != 137 {
		t.Fatalf("exit %d", r.exit)
	}
	if code, _ := b.call("POST", "/v1/sprites/one/exec/"+id+"/kill", nil); code != 410 {
		t.Errorf("second kill: %d", code)
	}
	if code, _ := b.call("POST", "/v1/sprites/one/exec/99999/kill", nil); code != 404 {
		t.Errorf("unknown session: %d", code)
	}
}

func TestChildThatHoldsThePipeDoesNotHoldTheExit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.sh("one", `sleep 1000 & echo done`)
	if r.exit != 0 || r.out.String() != "done\n" {
		t.Fatalf("exit %d, %q", r.exit, r.out.String())
	}
}

func TestLargeOutputArrivesWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.sh("one", `head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2`)
	if r.out.Len() != 5000000 || r.err.Len() != 3000000 || r.exit != 0 {
		t.Fatalf("%d %d %d", r.out.Len(), r.err.Len(), r.exit)
	}
}

func TestHTTPExecFramesEveryChunk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := url.Values{"cmd": {"sh", "-c", "cat; exit 9"}, "stdin": {"true"}}
	code, body := b.call("POST", "/v1/sprites/one/exec?"+q.Encode(), "in")
	if code != 200 || body != "\x01in\x03\x09" {
		t.Fatalf("%d %q", code, body)
	}
}

func TestSessionsAreListedWhileTheyRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", "echo up; read x")
	q.Set("stdin", "true")
	r := b.open("one", q).until("up")
	code, body := b.call("GET", "/v1/sprites/one/exec", nil)
	if code != 200 || !strings.Contains(body, `"id":"`+r.session()+`"`) || !strings.Contains(body, `"count":1`) {
		t.Fatalf("%d %s", code, body)
	}
	r.send(4)
	r.wait()
	if _, body := b.call("GET", "/v1/sprites/one/exec", nil); !strings.Contains(body, `"count":0`) {
		t.Fatal(body)
	}
}

func TestMissingProgramIs127AsInAShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("no-such-program")).wait()
	if r.exit != 127 || !strings.Contains(r.err.String(), "no-such-program") || slices.Contains(r.frames, "text:session_info") {
		t.Fatalf("%d %q %v", r.exit, r.err.String(), r.frames)
	}
}
