package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
)

func TestJobsAreListedByStateAndConversation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.run("exec", "--job", "j1", "--conversation", "c1", "--", "exit:2").want(t, "exec", 2, "")
	for args, want := range map[string]int{"": 1, "--state ended": 1, "--state running": 0, "--tenant other": 0} {
		got := r.run(append([]string{"jobs", "list", "--json"}, strings.Fields(args)...)...)
		rows := lines[bus.JobSummary](t, got.out)
		if got.code != 0 || len(rows) != want {
			t.Errorf("%q: %s", args, got)
		}
		if want == 1 && (rows[0].JobID != "j1" || rows[0].State != bus.JobEnded || rows[0].Outcome != plan.OutcomeExited) {
			t.Errorf("%q: %+v", args, rows)
		}
	}
	r.run("jobs", "list", "--state", "odd").want(t, "state", 2, "")
	r.run("jobs", "list", "--tenant", "a.b").want(t, "tenant", 2, "")
}

func TestShowPrintsEventsAsLinesAsJSONAndAsBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.run("exec", "--job", "j1", "--", "out:bytes", "err:noise", "exit:2").want(t, "exec", 2, "bytes")
	got := r.run("jobs", "show", "j1")
	for _, part := range []string{"accepted", "started", "stdout      5 bytes from 0", "dev/j1: exited 2"} {
		if got.code != 0 || !strings.Contains(got.out, part) {
			t.Errorf("lacks %q: %s", part, got)
		}
	}
	if got := r.run("jobs", "show", "dev/j1", "--output"); got.code != 0 || got.out != "bytes" || got.err != "noise" {
		t.Errorf("output: %s", got)
	}
	all := lines[printedEvent](t, r.run("jobs", "show", "j1", "--json").out)
	tail := lines[printedEvent](t, r.run("jobs", "show", "j1", "--json", "--from-seq", "3").out)
	if len(all) < 4 || len(tail) != len(all)-2 || tail[0].Seq != 3 || all[len(all)-1].Event != bus.EventResult {
		t.Errorf("all %v, tail %v", all, tail)
	}
	if got := r.run("jobs", "show", "j1", "--run", "0", "--follow"); got.code != 0 || !strings.Contains(got.out, "result") {
		t.Errorf("follow: %s", got)
	}
	r.run("jobs", "show", "nobody").want(t, "nobody", 1, "")
	r.run("jobs", "show", "a/b/c").want(t, "no job", 2, "")
}

func TestShowSaysThatAJobIsQueued(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run("exec", "--detach", "--job", "j1", "--", "true").want(t, "exec", 0, "j1\n")
	if got := r.run("jobs", "show", "j1"); got.code != 0 || !strings.Contains(got.err, "no worker has taken it yet") {
		t.Errorf("%s", got)
	}
}

func TestShowSaysWhyAJobWaitsAndWhoHoldsTheSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	m, err := lease.Open(t.Context(), lease.Config{URL: r.env["REDIS_URL"], Quarantine: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Acquire(t.Context(), lease.Request{ID: "dev.other.0.1", Kind: lease.KindExec, Tenant: "dev", User: "ann",
		Scopes: []lease.Scope{lease.UserScope(lease.KindExec, "dev", "ann", 1)}}); err != nil {
		t.Fatal(err)
	}
	key := bus.RunKey{Tenant: "dev", Job: "j1"}
	chain, err := r.bus.Claim(t.Context(), key, "w.1", bus.Claim{Record: bus.Record{Queued: 1, Kind: bus.KindExec, Actor: &bus.Actor{Tenant: "dev", User: "ann", Tier: plan.TierFree}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := chain.Release(t.Context(), bus.WaitingBody{For: bus.WaitLimit, Scope: "user", Until: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	got := r.run("jobs", "show", "j1")
	if got.code != 0 || !strings.Contains(got.err, "waits for limit (user) until") || !strings.Contains(got.err, "held by dev.other.0.1 (user ann") {
		t.Errorf("%s", got)
	}
}

func TestCancelStopsAJobOrAConversation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.play()
	done := make(chan ended, 1)
	go func() { done <- r.run("exec", "--job", "j1", "--", "wait") }()
	<-p.running
	r.run("jobs", "cancel", "j1", "--why", "enough").want(t, "cancel", 0, "marked dev/j1: it is running\n")
	if got := <-done; got.code != 130 {
		t.Errorf("%s", got)
	}
	r.run("jobs", "cancel", "--conversation", "c1").want(t, "conversation", 0, "marked dev/c1: it has no jobs\n")
	r.run("jobs", "cancel", "j1").want(t, "ended", 0, "marked dev/j1: it has ended, and stays as it is\n")
	r.run("jobs", "cancel", "nope").want(t, "unknown", 0, "marked dev/nope: no such job yet; it will not start when it is published\n")
	if got := r.run("jobs", "cancel", "j1", "--json"); !strings.Contains(got.out, `"found":"ended"`) {
		t.Errorf("%s", got)
	}
	for name, args := range map[string][]string{"nothing": {}, "both": {"j1", "--conversation", "c1"}, "a wildcard": {"--conversation", "*"}, "a dot": {"a.b"}} {
		r.run(append([]string{"jobs", "cancel"}, args...)...).want(t, name, 2, "")
	}
}

func TestFollowingAJobThatIsNotThereSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	said := make(lineWriter, 16)
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), r.cli(strings.NewReader(""), io.Discard, said), []string{"jobs", "show", "nope", "--follow"})
	}()
	if line := <-said; !strings.Contains(line, "no job dev/nope; its events are shown when they come") {
		t.Errorf("said %q", line)
	}
	r.interrupt()
	if code := <-done; code != 0 {
		t.Errorf("ended with %d", code)
	}
}

// lineWriter passes what is written on, a write each.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// drawer is a worker's file handler that keeps one file in memory and gives it out in small parts.
type drawer struct{ data []byte }

func (d *drawer) ReadFile(_ context.Context, _ bus.FileCall, p bus.FileReadParams) (*bus.FileContent, error) {
	if p.Path != "a.txt" {
		return nil, bus.NewEndpointError(plan.ReasonNotFound, "")
	}
	part := d.data[min(int(p.Offset), len(d.data)):min(int(p.Offset)+4, len(d.data))]
	return &bus.FileContent{Data: part, Size: int64(len(d.data)), Mode: "0644", Truncated: int(p.Offset)+len(part) < len(d.data)}, nil
}

func (d *drawer) WriteFile(_ context.Context, _ bus.FileCall, p bus.FileWriteParams, data []byte) (*bus.FileWritten, error) {
	d.data = data
	return &bus.FileWritten{Path: p.Path, Size: int64(len(data)), SHA256: "x"}, nil
}

func TestFilesGoBothWaysByteForByteAndInParts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run("files", "get", "a.txt").want(t, "without a worker", 1, "")
	ctx, cancel := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() {
		done <- r.bus.Serve(ctx, bus.EndpointConfig{Files: &drawer{}, Ready: func() { close(ready) }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	<-ready
	data := "0123456789\x00\xff"
	r.runIn(data, "files", "put", "-", "a.txt").want(t, "put", 0, "")
	r.run("files", "get", "a.txt").want(t, "get", 0, data)
	local := filepath.Join(r.dir, "local")
	r.run("files", "get", "a.txt", local).want(t, "get", 0, "")
	if got, err := os.ReadFile(local); err != nil || string(got) != data {
		t.Errorf("%q %v", got, err)
	}
	if got := r.run("files", "get", "b.txt", local); got.code != 1 || !strings.Contains(got.err, "not_found") {
		t.Errorf("%s", got)
	}
	if got, err := os.ReadFile(local); err != nil || string(got) != data {
		t.Errorf("a failed get touched the local file: %q %v", got, err)
	}
	r.run("files", "put", filepath.Join(r.dir, "none"), "a.txt").want(t, "no local file", 1, "")
	r.run("files", "get", "a.txt", "--conversation", "a*").want(t, "a wildcard", 2, "")
}
