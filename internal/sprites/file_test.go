package sprites_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

func entry(path string, size int, mode string, dir bool) string {
	return fmt.Sprintf(`{"path":%q,"entries":[{"name":"x","path":%q,"size":%d,"mode":%q,"isDir":%v}],"count":1}`, path, path, size, mode, dir)
}

func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client leave
	<-r.Context().Done()
}

func quick(c *sprites.Config) { c.CallTimeout = 500 * time.Millisecond }

func TestCase15AHangingReadIsWokenAndTriedOnceMore(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/fs/list", inTurn(hang, respond(200, entry("/workspace/a", 5, "0640", false))))
	f.on("GET /box/fs/read", respond(200, "hello"))
	f.on("GET /box/exec", f.accept(func(p *peer) { p.probe() }))
	data, info, err := f.client(quick).ReadFile(t.Context(), "box", "a", 0, 100)
	if err != nil || string(data) != "hello" || info.Size != 5 || info.Mode != 0o640 || info.Truncated {
		t.Errorf("got %q, %+v, %v", data, info, err)
	}
	if n := f.count(getExec); n != 1 {
		t.Errorf("woken %d times", n)
	}
}

func TestCase15AFileServiceThatNeverAnswersFailsInBoundedTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // not the calls': one without a bound fails here
	defer cancel()
	for name, op := range map[string]func(c *sprites.Client) error{
		"read": func(c *sprites.Client) error { _, _, err := c.ReadFile(ctx, "box", "a", 0, 1); return err },
		"write": func(c *sprites.Client) error {
			_, err := c.WriteFile(ctx, "box", "a", []byte("x"), 0)
			return err
		},
	} {
		f := newFake(t)
		f.on("GET /box/fs/list", hang)
		f.on("PUT /box/fs/write", hang)
		f.on("GET /box/exec", f.accept(func(p *peer) { p.probe() }))
		if err := op(f.client(quick)); sprites.ClassOf(err) != sprites.ClassTimeout || ctx.Err() != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if n := f.count("GET /v1/sprites/box/fs/list") + f.count("PUT /v1/sprites/box/fs/write"); n != 2 || f.count(getExec) != 1 {
			t.Errorf("%s: %d tries, %d wakes", name, n, f.count(getExec))
		}
	}
}

func TestCase15FiveAnswersAreFiveClasses(t *testing.T) {
	t.Parallel()
	for class, fault := range faults {
		f := newFake(t)
		f.on("GET /box/fs/list", fault)
		f.on("GET /box/exec", f.accept(func(p *peer) { p.probe() }))
		if _, _, err := f.client().ReadFile(t.Context(), "box", "a", 0, 1); sprites.ClassOf(err) != class {
			t.Errorf("%s: got %v", class, err)
		}
	}
}

func TestCase16AWriteWhoseParentIsGoneRecreatesIt(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("PUT /box/fs/write", inTurn(respond(404, `{"error":"no such directory","code":"ENOENT"}`), respond(200, `{"path":"/workspace/d/a","size":1,"mode":"0644"}`)))
	made := make(chan string, 1)
	f.on("GET /box/exec", f.accept(func(p *peer) {
		made <- p.r.URL.Query()["cmd"][4]
		p.probe()
	}))
	info, err := f.client().WriteFile(t.Context(), "box", "/workspace/d/a", []byte("x"), 0)
	if err != nil || info.Size != 1 || <-made != "/workspace/d" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestCase16AWriteThatSucceedsCostsNoWake(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("PUT /box/fs/write", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("mkdirParents") != "true" || q.Get("workingDir") != "/" || q.Get("path") != "/workspace/d/a" {
			t.Errorf("asked %v", q)
		}
		respond(200, `{"size":1,"mode":"0644"}`)(w, r)
	})
	if _, err := f.client().WriteFile(t.Context(), "box", "d/a", []byte("x"), 0); err != nil || len(f.calls) != 1 {
		t.Errorf("got %v, calls %v", err, f.calls)
	}
}

func TestCase18AModeHoldsForAnExistingFile(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("PUT /box/fs/write", respond(200, `{"size":6,"mode":"0644"}`)) // the service kept the old mode
	var asked struct{ Path, Mode string }
	f.on("POST /box/fs/chmod", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&asked)
		respond(200, `{"affected":[],"count":1}`)(w, r)
	})
	info, err := f.client().WriteFile(t.Context(), "box", "secret", []byte("secret"), 0o600)
	if err != nil || info.Mode != 0o600 || asked.Mode != "0600" || asked.Path != "/workspace/secret" {
		t.Errorf("got %+v, %v, asked %+v", info, err, asked)
	}
	f = newFake(t)
	f.on("PUT /box/fs/write", respond(200, `{"size":6,"mode":"0644"}`))
	f.on("POST /box/fs/chmod", respond(500, ``))
	f.on("GET /box/exec", f.accept(func(p *peer) { p.probe() }))
	if _, err := f.client().WriteFile(t.Context(), "box", "secret", []byte("secret"), 0o600); err == nil {
		t.Error("a mode that could not be set was reported as success")
	}
}

func TestCase18BothSpellingsOfTheRootAreAcceptedAndClimbingIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/fs/list", respond(200, entry("/workspace/a", 1, "0644", false)))
	f.on("GET /box/fs/read", respond(200, "x"))
	c := f.client()
	for _, name := range []string{"a", "./a", "/workspace/a", "/workspace//a"} {
		if _, info, err := c.ReadFile(t.Context(), "box", name, 0, 1); err != nil || info.Path != "/workspace/a" {
			t.Errorf("%q: %+v, %v", name, info, err)
		}
	}
	n := len(f.calls)
	for _, name := range []string{"", "../a", "/workspace/../etc/passwd", "a/..", "a\x00b", strings.Repeat("a", 5000)} {
		if _, _, err := c.ReadFile(t.Context(), "box", name, 0, 1); sprites.ClassOf(err) != sprites.ClassInvalid {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if len(f.calls) != n {
		t.Error("a refused path was asked for")
	}
}

func TestAReadIsBoundedWhileItStreams(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/fs/list", respond(200, entry("/workspace/a", 1<<30, "0644", false)))
	stopped := make(chan struct{})
	f.on("GET /box/fs/read", func(w http.ResponseWriter, _ *http.Request) {
		defer close(stopped)
		block := bytes.Repeat([]byte("0123456789"), 1<<10)
		for { // endless: only the client's leaving ends it
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	data, info, err := f.client().ReadFile(t.Context(), "box", "a", 15, 10)
	if err != nil || string(data) != "5678901234" || !info.Truncated || info.Size != 1<<30 {
		t.Errorf("got %q, %+v, %v", data, info, err)
	}
	<-stopped
}

func TestAFolderIsNotReadAsAFile(t *testing.T) {
	t.Parallel()
	for _, body := range []string{entry("/workspace/a/b", 1, "0644", false), entry("/workspace/a", 0, "0755", true), `{"entries":[]}`} {
		f := newFake(t)
		f.on("GET /box/fs/list", respond(200, body))
		_, _, err := f.client().ReadFile(t.Context(), "box", "a", 0, 1)
		var e *sprites.Error
		if !errors.As(err, &e) || e.Class != sprites.ClassInvalid || e.Code != "EISDIR" {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

func TestCase09ABulkWriteIsVerifiedBySize(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("PUT /box/fs/write", respond(200, `{"size":3,"mode":"0644"}`))
	f.on("GET /box/exec", f.accept(func(p *peer) { p.probe() }))
	if _, err := f.client().WriteFile(t.Context(), "box", "a", []byte("four"), 0); !errors.Is(err, sprites.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestSecretsNeverReachAnErrorOrTheLog(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-sentinel"
	var log lines
	f := newFake(t)
	f.on("GET /box/exec", inTurn(drop, respond(500, `{"error":"bad env KEY=`+secret+`"}`, "X-Request-Id", "r"), drop))
	cmd := command()
	cmd.Env = map[string]string{"KEY": secret}
	cmd.Stdin = []byte(secret)
	cmd.Argv = []string{"prog", secret}
	c := f.client(log.into)
	_, err := c.Start(t.Context(), cmd)
	_, err2 := f.client(log.into, func(c *sprites.Config) { c.BaseURL = "http://127.0.0.1:1" }).Start(t.Context(), cmd)
	texts := []string{log.String(), fmt.Sprintf("%v %+v %#v", cmd, cmd, cmd), fmt.Sprintf("%v %+v", err, err), fmt.Sprintf("%v", err2),
		fmt.Sprintf("%+v", sprites.Config{Token: sentinelToken}), fmt.Sprintf("%+v", sprites.PTYRequest{Env: cmd.Env})}
	if err == nil || err2 == nil {
		t.Fatal("no error to look into")
	}
	for _, s := range []string{secret, "s3cr3t-sentinel"} {
		if i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, s) }); i >= 0 {
			t.Errorf("%q is in %q", s, texts[i])
		}
	}
}

func TestTheTokenIsNotSentToWhereARedirectPoints(t *testing.T) {
	t.Parallel()
	other := newFake(t) // it fails the test when anything is asked
	f := newFake(t)
	f.on("GET /box", respond(302, "", "Location", other.srv.URL+"/v1/sprites/box"))
	f.on("GET /box/exec", respond(302, "", "Location", other.srv.URL+"/v1/sprites/box"))
	c := f.client()
	if _, err := c.Get(t.Context(), "box"); sprites.ClassOf(err) != sprites.ClassInvalid {
		t.Errorf("got %v", err)
	}
	if _, err := c.Start(t.Context(), command()); sprites.ClassOf(err) != sprites.ClassInvalid {
		t.Errorf("got %v", err)
	}
}

func TestAConfigSaysAllItsProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := sprites.New(nil, sprites.Config{BaseURL: "ftp://x", DialTimeout: -1, PingEvery: time.Hour})
	for _, want := range []string{"base URL", "token", "dial timeout", "ping timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}
