package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/instance"
)

// benchKeys are the keys that the contract names; others may stand beside them.
var benchKeys = []string{"enqueue_started_ms", "enqueue_result_ms", "exec_direct_ms", "added_ms", "lease_ms", "jobs_per_s", "output_mb_per_s",
	"bytes_per_job", "messages_per_job", "cpu_ms_per_job", "peak_rss_mib", "sync", "slots", "emulator"}

func checkBench(t *testing.T, out string) map[string]json.RawMessage {
	t.Helper()
	if strings.Count(out, "\n") != 1 {
		t.Fatalf("not one line: %q", out)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range benchKeys {
		if len(got[key]) == 0 {
			t.Errorf("no %s in %s", key, out)
		}
	}
	for _, key := range benchKeys[:5] {
		var d map[string]float64
		if err := json.Unmarshal(got[key], &d); err != nil || len(d) != 4 || d["p50"] > d["p90"] || d["p90"] > d["p99"] || d["p99"] > d["max"] {
			t.Errorf("%s is %s, %v", key, got[key], err)
		}
	}
	return got
}

func TestBenchMeasuresAnInstanceOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.run("bench", "--own", "--jobs", "20", "--rate", "100", "--concurrency", "4", "--workers", "2", "--output", "1MiB", "--json")
	if got.code != codeDone {
		t.Fatalf("%+v", got)
	}
	if keys := checkBench(t, got.out); string(keys["slots"]) != "8" || string(keys["emulator"]) != `"instant"` || string(keys["jobs"]) != "20" {
		t.Errorf("got %s", got.out)
	}
}

func TestBenchMeasuresARunningInstanceWithinItsDefaultLimits(t *testing.T) {
	t.Parallel()
	running, err := instance.Start(t.Context(), instance.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t)
	r.env = running.Env()
	got := r.run("bench", "--jobs", "8", "--rate", "100", "--output", "1MiB", "--json")
	if got.code != codeDone {
		t.Fatalf("%+v", got)
	}
	if keys := checkBench(t, got.out); string(keys["in_flight"]) != "4" || string(keys["emulator"]) != `"none"` {
		t.Errorf("got %s", got.out)
	}
	table := r.run("bench", "--jobs", "4", "--rate", "100", "--output", "64KiB")
	if table.code != codeDone || !strings.Contains(table.out, "enqueue to started") || !strings.Contains(table.out, "jobs a second") {
		t.Fatalf("%+v", table)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, args := range [][]string{
		{"bench", "--workers", "2"}, {"bench", "--own", "--workers", "0"}, {"bench", "--own", "--emulator", "other"},
		{"bench", "--payload", "many"}, {"bench", "--output", "-1"}, {"bench", "--own", "--jobs", "-1"}, {"bench", "extra"},
	} {
		if got := r.run(args...); got.code != codeUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
	delete(r.env, "NATS_URL")
	r.env["NATS_URL"] = "nats://127.0.0.1:1"
	if got := r.run("bench"); got.code != codeUnreachable {
		t.Errorf("%+v", got)
	}
}
