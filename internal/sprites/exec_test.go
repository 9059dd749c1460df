package sprites_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites"
)

func TestCase01ASocketThatClosesWithoutAnExitFrameIsNeverAnExitCode(t *testing.T) {
	t.Parallel()
	endings := map[string]func(p *peer){
		"1000": func(p *peer) { _ = p.conn.Close(websocket.StatusNormalClosure, "") },
		"1011": func(p *peer) { _ = p.conn.Close(websocket.StatusInternalError, "boom") },
		"1006": func(p *peer) { _ = p.conn.CloseNow() },
	}
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box/exec", f.exec(func(p *peer) {
				p.info("41", 7)
				p.out(sprites.Stdout, "half ")
				p.out(sprites.Stderr, "oops")
				p.out(sprites.Stdout, "done")
				end(p)
			}))
			proc, err := f.client().Start(t.Context(), command())
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			stdout, stderr, err := collect(t.Context(), proc)
			if stdout != "half done" || stderr != "oops" {
				t.Errorf("buffered frames were not drained: %q, %q", stdout, stderr)
			}
			var e *sprites.Error
			if !errors.As(err, &e) || e.Class != sprites.ClassTransport || !e.Opened || !errors.Is(err, sprites.ErrNoExit) {
				t.Errorf("got %v, want a transport error after open", err)
			}
			if exit, ok := proc.Exit(); ok {
				t.Errorf("exit %v was made up", exit)
			}
		})
	}
}

// A connection that is cut ends in an EOF of its own, which must not pass for the EOF of a process that ended.
func TestCase01ACutConnectionIsNoEndOfOutput(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", respond(200, record("box", "warm")))
	f.on("GET /box/exec", f.accept(func(p *peer) {
		p.info("41", 7)
		_ = p.conn.CloseNow()
	}))
	c := f.client()
	proc := start(t, c)
	defer proc.Close()
	if _, _, err := collect(t.Context(), proc); errors.Is(err, io.EOF) || !errors.Is(err, sprites.ErrNoExit) {
		t.Errorf("a command: %v", err)
	}
	if woke, err := c.EnsureAwake(t.Context(), "box"); !errors.Is(err, sprites.ErrNoExit) {
		t.Errorf("a command of our own: %s, %v", woke, err)
	}
}

func TestCase02ExitCodesArriveAsSent(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0, 7, 42, 128, 137, 255} {
		f := newFake(t)
		f.on("GET /box/exec", f.exec(func(p *peer) {
			p.info("41", 7)
			p.exit(code)
			p.wait()
		}))
		proc, err := f.client().Start(t.Context(), command())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := collect(t.Context(), proc); err != io.EOF {
			t.Fatalf("code %d: %v", code, err)
		}
		exit, ok := proc.Exit()
		if !ok || exit.Code != int(code) || exit.Source != sprites.ExitFrame {
			t.Errorf("got %+v, want code %d", exit, code)
		}
		if want := map[byte]string{137: "KILL"}[code]; exit.Signal != want {
			t.Errorf("code %d: signal %q, want %q", code, exit.Signal, want)
		}
		_ = proc.Close()
		f.allClosed()
	}
}

// Without a terminal the binary frame is the only exit: a text frame before it may say anything.
func TestCase02ATextExitIsNoExitWithoutATerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		binary bool
		code   int
	}{"before the frame": {true, 7}, "alone": {false, 0}} {
		f := newFake(t)
		f.on("GET /box/exec", f.exec(func(p *peer) {
			p.info("41", 7)
			p.text(map[string]any{"type": "exit", "exit_code": 0})
			if tt.binary {
				p.exit(byte(tt.code))
				p.wait()
			}
		}))
		proc := start(t, f.client())
		_, _, err := collect(t.Context(), proc)
		exit, ok := proc.Exit()
		if ok != tt.binary || exit.Code != tt.code || tt.binary != errors.Is(err, io.EOF) || tt.binary == errors.Is(err, sprites.ErrNoExit) {
			t.Errorf("%s: %+v, %v", name, exit, err)
		}
		_ = proc.Close()
	}
}

func TestCase02AnEmptyExitPayloadIsNoCode(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		p.binary(3)
		p.wait()
	}))
	proc, err := f.client().Start(t.Context(), command())
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	if _, _, err := collect(t.Context(), proc); !errors.Is(err, sprites.ErrNoExit) {
		t.Errorf("got %v, want ErrNoExit", err)
	}
	if _, ok := proc.Exit(); ok {
		t.Error("an exit code was made up")
	}
}

func TestCase02ATerminalsExitWithoutACodeIsNoCode(t *testing.T) {
	t.Parallel()
	for name, exit := range map[string]map[string]any{
		"none":      {"type": "exit"},
		"negative":  {"type": "exit", "exit_code": -1},
		"too large": {"type": "exit", "exit_code": 256},
	} {
		f := newFake(t)
		f.on("GET /box/exec", f.accept(func(p *peer) {
			p.info("41", 7)
			p.text(exit)
			p.wait()
		}))
		pty, err := f.client().OpenPTY(t.Context(), sprites.PTYRequest{Sprite: "box"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(pty); !errors.Is(err, sprites.ErrNoExit) {
			t.Errorf("%s: got %v, want ErrNoExit", name, err)
		}
		if code, ok := pty.Exit(); ok {
			t.Errorf("%s: exit %+v was made up", name, code)
		}
		_ = pty.Close()
	}
}

func TestCase02ATerminalsJSONExitArrives(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.accept(func(p *peer) {
		p.info("41", 7)
		p.binary([]byte("prompt")...)
		p.text(map[string]any{"type": "exit", "exit_code": 42})
		p.wait()
	}))
	pty, err := f.client().OpenPTY(t.Context(), sprites.PTYRequest{Sprite: "box"})
	if err != nil {
		t.Fatal(err)
	}
	defer pty.Close()
	out, err := io.ReadAll(pty)
	if err != nil || string(out) != "prompt" {
		t.Errorf("got %q, %v", out, err)
	}
	if exit, ok := pty.Exit(); !ok || exit.Code != 42 {
		t.Errorf("got %+v, want 42", exit)
	}
}

func TestCase03ASilentNormalCloseIsAnsweredFromTheGuardsFile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lines []string
		fate  sprites.Fate
		code  int
	}{
		"ended":   {[]string{"41 100 n1", "exit 3"}, sprites.FateExited, 3},
		"no line": {[]string{"41 100 n1"}, sprites.FateLost, 0},
		"limit":   {[]string{"41 100 n1", "limit", "exit 143"}, sprites.FateLimit, 0},
		"no file": {nil, sprites.FateNever, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.setGuard(false, tt.lines...)
			f.on("GET /box/exec", f.exec(func(p *peer) { _ = p.conn.Close(websocket.StatusNormalClosure, "") }))
			f.on("GET /box/exec/{id}", respond(http.StatusNotFound, "session not found: 41"))
			c := f.client()
			_, err := c.Start(t.Context(), command())
			var e *sprites.Error
			if !errors.As(err, &e) || !e.Opened || !errors.Is(err, sprites.ErrNoSessionInfo) {
				t.Fatalf("got %v, want an error after open", err)
			}
			got, err := c.Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Guard: "dev.job.0"}, 0)
			if err != nil || got.Fate != tt.fate {
				t.Fatalf("got %v, %v, want %v", got.Fate, err, tt.fate)
			}
			if tt.fate == sprites.FateExited && (got.Exit.Code != tt.code || got.Exit.Source != sprites.ExitFile) {
				t.Errorf("got %+v", got.Exit)
			}
			f.allClosed()
		})
	}
}

func TestCase04RetriesOnlyWhatNeverStarted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var nonces []string
	f.on("GET /box/exec", inTurn(drop, drop, f.exec(func(p *peer) {
		f.setGuard(true, "41 100 "+p.nonce())
		p.info("41", 7)
		p.exit(0)
		p.wait()
	}), f.exec(nil)))
	cmd := command()
	cmd.BeforeDial = func(_ context.Context, try int) error {
		nonces = append(nonces, strings.Repeat("x", try))
		return nil
	}
	proc, err := f.client().Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	if _, _, err := collect(t.Context(), proc); err != io.EOF {
		t.Fatal(err)
	}
	if len(nonces) != 3 {
		t.Errorf("journalled %d dials, want 3", len(nonces))
	}
	if w := f.waits(); !slices.Equal(w, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond}) {
		t.Errorf("waits %v do not grow as the table says", w)
	}
}

func TestCase04NothingIsRetriedAfterOpen(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(p *peer){
		"at once":      func(p *peer) { _ = p.conn.CloseNow() },
		"after info":   func(p *peer) { p.info("41", 7); _ = p.conn.CloseNow() },
		"after a byte": func(p *peer) { p.info("41", 7); p.out(sprites.Stdout, "x"); _ = p.conn.CloseNow() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box/exec", f.exec(script))
			proc, err := f.client().Start(t.Context(), command())
			if err == nil {
				_, _, err = collect(t.Context(), proc)
				_ = proc.Close()
			}
			var e *sprites.Error
			if !errors.As(err, &e) || !e.Opened {
				t.Errorf("got %v, want an error after open", err)
			}
			if n := f.count("GET /v1/sprites/box/exec"); n != 1 {
				t.Errorf("dialled %d times, want once", n)
			}
		})
	}
}

func TestCase04AnErrorBeforeDialEndsTheStartWithoutADial(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	fenced := errors.New("fenced")
	cmd := command()
	cmd.BeforeDial = func(context.Context, int) error { return fenced }
	if _, err := f.client().Start(t.Context(), cmd); !errors.Is(err, fenced) {
		t.Errorf("got %v", err)
	}
	if n := f.count("GET /v1/sprites/box/exec"); n != 0 {
		t.Errorf("dialled %d times", n)
	}
}

// Neither the deadline of ordinary calls nor the command's own limit, both far shorter here, counts before the socket opened.
func TestCase05AHandshakeMayTakeAsLongAsAColdBoot(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(ctx context.Context, c *sprites.Client) error{
		"exec": func(ctx context.Context, c *sprites.Client) error {
			cmd := command()
			cmd.Limit = time.Millisecond
			proc, err := c.Start(ctx, cmd)
			if err != nil {
				return err
			}
			defer proc.Close()
			_, _, err = collect(ctx, proc)
			return err
		},
		"terminal": func(ctx context.Context, c *sprites.Client) error {
			pty, err := c.OpenPTY(ctx, sprites.PTYRequest{Sprite: "box"})
			if err != nil {
				return err
			}
			defer pty.Close()
			if _, err = io.ReadAll(pty); err == nil {
				err = io.EOF
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			arrived, booted := make(chan struct{}, 9), make(chan struct{})
			boot := sync.OnceFunc(func() { close(booted) })
			t.Cleanup(boot) // a handshake that still waits would hold the server's end up
			accept := f.accept(func(p *peer) {
				p.info("41", 7)
				if p.r.URL.Query().Get("tty") == "true" {
					p.text(map[string]any{"type": "exit", "exit_code": 0})
				} else {
					p.exit(0)
				}
				p.wait()
			})
			f.on("GET /box/exec", func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-booted
				accept(w, r)
			})
			c := f.client(func(c *sprites.Config) { c.CallTimeout = 10 * time.Millisecond })
			done := make(chan error, 1)
			go func() { done <- open(context.Background(), c) }()
			select {
			case err := <-done:
				t.Fatalf("gave up before it dialled: %v", err)
			case <-arrived:
			}
			select {
			case err := <-done:
				t.Fatalf("gave up before the handshake was answered: %v", err)
			case <-time.After(100 * time.Millisecond): // ten call timeouts, a hundred limits
			}
			boot()
			if err := <-done; err != io.EOF {
				t.Errorf("got %v", err)
			}
			if n := len(arrived); n != 0 {
				t.Errorf("%d dials more than one", n)
			}
		})
	}
}

func TestCase05ADialHasADeadlineOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	f.on("GET /box/exec", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	cmd, dials := command(), 0
	cmd.BeforeDial = func(_ context.Context, try int) error { dials = try; return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not the dial's: a dial without one fails here
	defer cancel()
	_, err := f.client(func(c *sprites.Config) { c.DialTimeout = 30 * time.Millisecond }).Start(ctx, cmd)
	if sprites.ClassOf(err) != sprites.ClassTimeout || ctx.Err() != nil {
		t.Errorf("got %v, want a timeout", err)
	}
	if dials != 3 {
		t.Errorf("dialled %d times, want 3", dials)
	}
}

func TestCase06NoSocketOutlivesAnyEnding(t *testing.T) {
	t.Parallel()
	endings := map[string]func(t *testing.T, f *fake, c *sprites.Client){
		"exit": func(t *testing.T, f *fake, c *sprites.Client) {
			proc := start(t, c)
			if _, _, err := collect(t.Context(), proc); err != io.EOF {
				t.Error(err)
			}
		},
		"closed unread": func(t *testing.T, f *fake, c *sprites.Client) { _ = start(t, c).Close() },
		"cancel mid-run": func(t *testing.T, f *fake, c *sprites.Client) {
			proc := start(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for {
				if _, err := proc.Next(ctx); err != nil {
					break
				}
			}
			_ = proc.Close()
		},
		"timeout": func(t *testing.T, f *fake, c *sprites.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if proc, err := c.Start(ctx, command()); err == nil {
				_, _, _ = collect(ctx, proc)
				_ = proc.Close()
			}
		},
		"output cap": func(t *testing.T, f *fake, c *sprites.Client) {
			proc := start(t, c)
			if _, err := proc.Next(t.Context()); err != nil {
				t.Error(err)
			}
			_ = proc.Close()
		},
		"garbage before info": func(t *testing.T, f *fake, c *sprites.Client) {
			cmd := command()
			cmd.Job = "garbage"
			if _, err := c.Start(t.Context(), cmd); err == nil {
				t.Error("no error")
			}
		},
	}
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box/exec", f.exec(func(p *peer) {
				if slices.Contains(p.r.URL.Query()["env"], "WAKEBUS_JOB=garbage") {
					p.out(sprites.Stdout, "too early")
					p.wait()
					return
				}
				p.info("41", 7)
				for range 20 {
					p.out(sprites.Stdout, strings.Repeat("x", 70_000))
				}
				p.exit(0)
				p.wait() // the server never closes first
			}))
			c := f.client()
			for range 5 {
				end(t, f, c)
			}
			f.allClosed()
		})
	}
}

func start(t *testing.T, c *sprites.Client) *sprites.Process {
	t.Helper()
	proc, err := c.Start(t.Context(), command())
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

func TestCase06ACancelDuringTheDialLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("user said so")
	gone := make(chan struct{})
	f.on("GET /box/exec", func(_ http.ResponseWriter, r *http.Request) {
		cancel(why)
		select {
		case <-r.Context().Done():
			close(gone)
		case <-time.After(10 * time.Second): // an answer frees whoever still waits for one
		}
	})
	_, err := f.client().Start(ctx, command())
	if sprites.ClassOf(err) != sprites.ClassCanceled || !errors.Is(err, why) {
		t.Errorf("got %v, want canceled with its cause", err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the connection outlived the dial")
	}
	if n := f.count("GET /v1/sprites/box/exec"); n != 1 {
		t.Errorf("dialled %d times", n)
	}
}

func TestCase07StdinIsOffUnlessGiven(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stdin []byte
		on    string
	}{
		"none":        {nil, "false"},
		"empty":       {[]byte{}, "true"},
		"bytes":       {[]byte("from"), "true"},
		"the maximum": {bytes.Repeat([]byte("a"), sprites.InputMax), "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			got := make(chan string, 1)
			f.on("GET /box/exec", f.exec(func(p *peer) {
				if on := p.r.URL.Query().Get("stdin"); on != tt.on {
					t.Errorf("stdin=%s, want %s", on, tt.on)
				}
				p.info("41", 7)
				var in strings.Builder
				for tt.on == "true" {
					_, msg, err := p.conn.Read(p.ctx)
					if err != nil || len(msg) == 0 || msg[0] == 4 {
						break
					}
					in.Write(msg[1:])
				}
				got <- in.String()
				p.exit(0)
				p.wait()
			}))
			cmd := command()
			cmd.Stdin = tt.stdin
			proc, err := f.client().Start(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			select {
			case in := <-got:
				if in != string(tt.stdin) {
					t.Errorf("got %d bytes, want %d", len(in), len(tt.stdin))
				}
			case <-time.After(10 * time.Second):
				t.Error("no end of the input came")
			}
		})
	}
}

func TestCase07MoreStdinThanTheMaximumIsRefusedUnsent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	cmd := command()
	cmd.Stdin = make([]byte, sprites.InputMax+1)
	if _, err := f.client().Start(t.Context(), cmd); sprites.ClassOf(err) != sprites.ClassInvalid {
		t.Errorf("got %v", err)
	}
}

func TestCase09OutputIsHeldBackInsteadOfBuffered(t *testing.T) {
	t.Parallel()
	const total = 64 << 20
	f := newFake(t)
	var sent atomic.Int64
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		frame := append([]byte{1}, make([]byte, 1<<20)...)
		for sent.Load() < total {
			if p.conn.Write(p.ctx, websocket.MessageBinary, frame) != nil {
				return
			}
			sent.Add(1 << 20)
		}
		p.exit(0)
		p.wait()
	}))
	proc := start(t, f.client())
	defer proc.Close()
	// Nobody reads: the server comes to a stop.
	for last := int64(-1); last != sent.Load(); {
		last = sent.Load()
		<-time.After(300 * time.Millisecond)
	}
	got := 0
	for {
		if ahead := sent.Load() - int64(got); ahead > 32<<20 { // the kernel's socket buffers, and no more
			t.Fatalf("%d bytes are under way unread", ahead)
		}
		chunk, err := proc.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk.Data) > 64<<10 {
			t.Fatalf("chunk of %d bytes", len(chunk.Data))
		}
		got += len(chunk.Data)
	}
	if got != total {
		t.Errorf("got %d bytes, want %d", got, total)
	}
}

func TestCase12TheBaseEnvironmentIsAlwaysSent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	env := make(chan []string, 2)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		env <- p.r.URL.Query()["env"]
		p.info("41", 7)
		p.exit(0)
		p.wait()
	}))
	c := f.client()
	cmd := command()
	cmd.Env = map[string]string{"CI": "0", "MINE": "a=b c"}
	proc, err := c.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	_ = proc.Close()
	got := <-env
	for _, want := range []string{"HOME=/home/sprite", "LANG=C.UTF-8", "CI=0", "MINE=a=b c", "TERM=dumb", "NO_COLOR=1", "PAGER=cat", "WAKEBUS_JOB=job"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "PATH=/") }) {
		t.Errorf("no PATH in %q", got)
	}
	pty, err := c.OpenPTY(t.Context(), sprites.PTYRequest{Sprite: "box"})
	if err == nil { // the fake announces a terminal for tty=true
		_ = pty.Close()
	}
	if got := <-env; !slices.Contains(got, "TERM=xterm-256color") || slices.Contains(got, "CI=1") {
		t.Errorf("a terminal's environment is %q", got)
	}
}

func TestCase28AFailedHandshakeSaysWhy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		body   string
		want   sprites.Error
	}{
		{403, `{"error":"forbidden"}`, sprites.Error{Class: sprites.ClassUnauthorized, Code: "forbidden"}},
		{404, `sprite not found`, sprites.Error{Class: sprites.ClassNotFound}},
		{429, `{"error":"rate","retry_after_seconds":60}`, sprites.Error{Class: sprites.ClassRateLimited, Code: "rate", RetryAfter: time.Minute}},
		{429, `{"error":"concurrent_sprite_limit_exceeded","limit":3}`, sprites.Error{Class: sprites.ClassConcurrentLimit, Code: "concurrent_sprite_limit_exceeded", RetryAfter: 7 * time.Second}},
		{503, `<html>`, sprites.Error{Class: sprites.ClassUnavailable, RetryAfter: 7 * time.Second}},
	} {
		f := newFake(t)
		f.on("GET /box/exec", respond(tt.status, tt.body, "X-Request-Id", "req-1", "Retry-After", "7"))
		_, err := f.client().Start(t.Context(), command())
		var e *sprites.Error
		if !errors.As(err, &e) {
			t.Fatalf("%d: %v", tt.status, err)
		}
		if tt.want.RetryAfter == 0 {
			tt.want.RetryAfter = 7 * time.Second
		}
		if e.Status != tt.status || e.Class != tt.want.Class || e.Code != tt.want.Code || e.RetryAfter != tt.want.RetryAfter || e.RequestID != "req-1" || e.Opened {
			t.Errorf("%d: got %+v", tt.status, *e)
		}
	}
}

func TestCase28ADialFailureHarmsNoOtherRequest(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	failed := make(chan struct{}) // closed once the other request has failed
	f.on("GET /broken/exec", drop)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		<-failed
		p.exit(0)
		p.wait()
	}))
	c := f.client()
	cmd := command()
	result := make(chan error, 1)
	go func() {
		proc, err := c.Start(context.Background(), cmd)
		if err == nil {
			_, _, err = collect(context.Background(), proc)
			_ = proc.Close()
		}
		result <- err
	}()
	bad := command()
	bad.Sprite = "broken"
	if _, err := c.Start(t.Context(), bad); sprites.ClassOf(err) != sprites.ClassTransport {
		t.Errorf("got %v", err)
	}
	close(failed)
	if err := <-result; err != io.EOF {
		t.Errorf("the other request failed: %v", err)
	}
}

func TestASilentSocketIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	defer close(release)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		<-release // not reading: no pongs
	}))
	proc := start(t, f.client(func(c *sprites.Config) {
		c.PingEvery, c.PingTimeout = 10*time.Millisecond, 40*time.Millisecond
	}))
	defer proc.Close()
	if _, _, err := collect(t.Context(), proc); !errors.Is(err, sprites.ErrSilent) || !errors.Is(err, sprites.ErrNoExit) {
		t.Errorf("got %v", err)
	}
}

func TestASlowConsumerIsNotTakenForASilentServer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		go func() {
			for range 10 {
				p.out(sprites.Stdout, "x")
			}
			p.exit(0)
		}()
		p.wait() // answers pings all the while
	}))
	proc := start(t, f.client(func(c *sprites.Config) {
		c.PingEvery, c.PingTimeout = 20*time.Millisecond, 500*time.Millisecond
	}))
	defer proc.Close()
	<-time.After(time.Second) // twice the limit, with nobody reading
	if out, _, err := collect(t.Context(), proc); err != io.EOF || out != "xxxxxxxxxx" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestOutputThatLagsBehindTheExitFrameIsKept(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		p.out(sprites.Stdout, "a")
		p.exit(5)
		p.out(sprites.Stdout, "b")
		p.text(map[string]any{"type": "exit", "exit_code": 5})
		p.wait()
	}))
	proc := start(t, f.client(func(c *sprites.Config) { c.Drain = 5 * time.Second }))
	defer proc.Close()
	out, _, err := collect(t.Context(), proc)
	if exit, _ := proc.Exit(); out != "ab" || err != io.EOF || exit.Code != 5 {
		t.Errorf("got %q, %v, %+v", out, err, exit)
	}
}

func TestACancelledNextLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	more := make(chan struct{})
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		<-more
		p.out(sprites.Stdout, "late")
		p.exit(0)
		p.wait()
	}))
	proc := start(t, f.client())
	defer proc.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := proc.Next(ctx); sprites.ClassOf(err) != sprites.ClassCanceled {
		t.Fatalf("got %v", err)
	}
	close(more)
	if out, _, err := collect(t.Context(), proc); out != "late" || err != io.EOF {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestAMalformedCommandIsNotDialled(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	for name, change := range map[string]func(*sprites.Command){
		"name":     func(c *sprites.Command) { c.Sprite = "a/../b" },
		"guard":    func(c *sprites.Command) { c.Guard = "../x" },
		"both":     func(c *sprites.Command) { c.Shell = "true" },
		"neither":  func(c *sprites.Command) { c.Argv = nil },
		"option":   func(c *sprites.Command) { c.Argv = []string{"-c", "x"} },
		"cwd":      func(c *sprites.Command) { c.Cwd = "relative" },
		"limit":    func(c *sprites.Command) { c.Limit = 0 },
		"nul":      func(c *sprites.Command) { c.Argv = []string{"a\x00b"} },
		"env name": func(c *sprites.Command) { c.Env = map[string]string{"A=B": "c"} },
	} {
		cmd := command()
		change(&cmd)
		if _, err := c.Start(t.Context(), cmd); sprites.ClassOf(err) != sprites.ClassInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
