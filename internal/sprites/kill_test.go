package sprites_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

const listed = `{"count":1,"sessions":[{"id":"41","command":"/bin/sh","created":"2026-08-05T04:37:58Z","tty":false,"is_active":false}]}`

// since is listed's created.
var since = time.Date(2026, 8, 5, 4, 37, 58, 0, time.UTC).Unix()

func ndjson(linesOut ...string) http.HandlerFunc {
	return respond(200, strings.Join(linesOut, "\n")+"\n", "Content-Type", "application/x-ndjson")
}

const (
	lineSignal   = `{"type":"signal","message":"Signaling SIGKILL to process group 41","signal":"SIGKILL","pid":41}`
	lineExited   = `{"type":"exited","message":"Process exited"}`
	lineTimeout  = `{"type":"timeout","message":"still there"}`
	lineKilled   = `{"type":"killed","message":"killed"}`
	lineError    = `{"type":"error","message":"no such luck"}`
	lineComplete = `{"type":"complete","exit_code":137}`
)

func TestCase14AKillReadsItsProgressToTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   sprites.Killed
	}{
		"exited":          {ndjson(lineSignal, lineExited, lineComplete), sprites.KillConfirmed},
		"escalated":       {ndjson(lineSignal, lineTimeout, lineKilled, lineComplete), sprites.KillConfirmed},
		"error line":      {ndjson(lineSignal, lineTimeout, lineError, lineComplete), sprites.KillUnconfirmed},
		"cut off":         {ndjson(lineSignal, lineExited), sprites.KillUnconfirmed},
		"empty":           {respond(200, ""), sprites.KillUnconfirmed},
		"unknown session": {respond(404, "session not found: 41"), sprites.KillGone},
		"already exited":  {respond(410, ""), sprites.KillGone},
		"refused":         {respond(401, ""), sprites.KillUnconfirmed},
		"no such route":   {respond(405, ""), sprites.KillUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box/exec", respond(200, listed))
			f.on("POST /box/exec/41/kill", func(w http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); q.Get("signal") != "SIGKILL" || q.Get("timeout") != "2s" {
					t.Errorf("asked %v", q)
				}
				tt.answer(w, r)
			})
			got, err := f.client().Kill(t.Context(), "box", sprites.Session{ID: "41", Created: since}, sprites.SignalKill, 2*time.Second)
			if got != tt.want || (err != nil) != (tt.want == sprites.KillUnconfirmed) {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

func TestCase14AnUnconfirmedKillIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(200, listed))
	f.on("POST /box/exec/41/kill", inTurn(ndjson(lineSignal), respond(503, ""), ndjson(lineSignal, lineExited, lineComplete)))
	got, err := f.client().Kill(t.Context(), "box", sprites.Session{ID: "41", Created: since}, sprites.SignalTerm, time.Second)
	if got != sprites.KillConfirmed || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCase14AKillIsBoundedInTime(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(200, listed))
	f.on("POST /box/exec/41/kill", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, lineSignal)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c := f.client(func(c *sprites.Config) { c.CallTimeout = 30 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not the kill's: one without a bound fails here
	defer cancel()
	got, err := c.Kill(ctx, "box", sprites.Session{ID: "41", Created: since}, sprites.SignalKill, 0)
	if got != sprites.KillUnconfirmed || sprites.ClassOf(err) != sprites.ClassTimeout || ctx.Err() != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCase14AKillSparesTheProcessThatGotTheSessionsID(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(200, listed))
	got, err := f.client().Kill(t.Context(), "box", sprites.Session{ID: "41", Created: since - 600}, sprites.SignalKill, 0)
	if got != sprites.KillGone || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCase14AKillThatCannotCompareDoesNotKill(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(503, ""))
	got, err := f.client().Kill(t.Context(), "box", sprites.Session{ID: "41", Created: since}, sprites.SignalKill, 0)
	if got != sprites.KillUnconfirmed || sprites.ClassOf(err) != sprites.ClassUnavailable {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCase10StopEscalatesUntilTheEndIsConfirmed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(200, listed))
	var signals []string
	f.on("POST /box/exec/41/kill", func(w http.ResponseWriter, r *http.Request) {
		sig := r.URL.Query().Get("signal")
		signals = append(signals, sig)
		if sig == "SIGTERM" {
			ndjson(lineSignal, lineTimeout, lineError, lineComplete)(w, r)
			return
		}
		ndjson(lineSignal, lineKilled, lineComplete)(w, r)
	})
	got, err := f.client().Stop(t.Context(), "box", sprites.Session{ID: "41", Created: since}, time.Second)
	if got != sprites.KillConfirmed || err != nil || signals[len(signals)-1] != "SIGKILL" {
		t.Errorf("got %s, %v, signals %v", got, err, signals)
	}
}

func TestAnUnknownSignalIsNotSent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if _, err := f.client().Kill(t.Context(), "box", sprites.Session{ID: "41"}, "STOP", 0); sprites.ClassOf(err) != sprites.ClassInvalid {
		t.Errorf("got %v", err)
	}
}

func TestCase25AProgressStreamWithoutCompletionIsAFailure(t *testing.T) {
	t.Parallel()
	const complete = `{"type":"complete","data":"Checkpoint v2 created successfully"}`
	for name, tt := range map[string]struct {
		lines []string
		ok    bool
	}{
		"complete":            {[]string{`{"type":"info","data":"Creating checkpoint..."}`, complete}, true},
		"advisory error":      {[]string{`{"type":"error","error":"one file skipped"}`, complete}, true},
		"noise":               {[]string{`not json`, complete}, true},
		"cut off":             {[]string{`{"type":"info","data":"  ID: v2"}`}, false},
		"terminal error":      {[]string{`{"type":"info"}`, `{"type":"error","error":"disk"}`}, false},
		"error after success": {[]string{complete, `{"type":"error","error":"disk"}`}, false},
		"nothing":             {nil, false},
	} {
		f := newFake(t)
		f.on("POST /box/checkpoints/v1/restore", ndjson(tt.lines...))
		err := f.client().Restore(t.Context(), "box", "v1")
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v", name, err)
		}
		if n := f.count("POST /v1/sprites/box/checkpoints/v1/restore"); n != 1 {
			t.Errorf("%s: restored %d times", name, n)
		}
	}
}

// A checkpoint that stalls holds its caller for no longer than the caller's own bound, and is not made a second time.
func TestCase25AStalledCheckpointEndsWithItsCallersPatience(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]func(context.Context, *sprites.Client) error{
		"checkpoint": func(ctx context.Context, c *sprites.Client) error { _, err := c.Checkpoint(ctx, "box", ""); return err },
		"restore":    func(ctx context.Context, c *sprites.Client) error { return c.Restore(ctx, "box", "v1") },
	} {
		f := newFake(t)
		f.on("GET /box/checkpoints", respond(200, `[]`))
		stalled, gone := make(chan struct{}, 9), make(chan struct{}, 9)
		stall := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http sees the client leave only after that
			_, _ = fmt.Fprintln(w, `{"type":"info","data":"Creating checkpoint..."}`)
			_ = http.NewResponseController(w).Flush()
			stalled <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		}
		f.on("POST /box/checkpoint", stall)
		f.on("POST /box/checkpoints/v1/restore", stall)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-stalled
			cancel()
		}()
		if err := op(ctx, f.client()); sprites.ClassOf(err) != sprites.ClassCanceled {
			t.Errorf("%s: got %v", name, err)
		}
		<-gone // its connection is not kept
		if n := f.count("POST /v1/sprites/box/checkpoint") + f.count("POST /v1/sprites/box/checkpoints/v1/restore"); n != 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
	}
}

func TestCase25ACheckpointIsNamedByTheListing(t *testing.T) {
	t.Parallel()
	before := `[{"id":"v1","create_time":"2026-08-01T10:00:00Z"}]`
	after := `[{"id":"Current","create_time":"2026-08-01T11:00:01Z"},{"id":"v2","create_time":"2026-08-01T11:00:00Z","comment":"c"},{"id":"v1","create_time":"2026-08-01T10:00:00Z"}]`
	f := newFake(t)
	f.on("GET /box/checkpoints", inTurn(respond(200, before), respond(200, after)))
	f.on("POST /box/checkpoint", ndjson(`{"type":"complete","data":"done"}`))
	got, err := f.client().Checkpoint(t.Context(), "box", "c")
	if err != nil || got.ID != "v2" || got.Comment != "c" {
		t.Errorf("got %+v, %v", got, err)
	}
	f = newFake(t)
	f.on("GET /box/checkpoints", respond(200, before))
	f.on("POST /box/checkpoint", ndjson(`{"type":"complete","data":"done"}`))
	if got, err := f.client().Checkpoint(t.Context(), "box", "c"); err == nil {
		t.Errorf("success without a new checkpoint: %+v", got)
	}
}
