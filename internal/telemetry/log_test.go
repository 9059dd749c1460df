package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/telemetry"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 67_000_000, time.UTC) }

func newLog(out *bytes.Buffer, cfg telemetry.LogConfig) *telemetry.Log {
	cfg.Output, cfg.Now = out, at
	return telemetry.NewLog(cfg)
}

func TestALogLineIsOneJSONObjectWithItsFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, telemetry.LogConfig{Service: "worker", Version: "v1"})
	child := log.With().Str(telemetry.KeyJob, "j1").Logger()
	child.Info().Str(telemetry.KeyOutcome, "exited").Msg("job ended")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	for key, want := range map[string]string{"time": "2026-01-02T03:04:05.067Z", "level": "info", "service": "worker",
		"version": "v1", "job_id": "j1", "outcome": "exited", "message": "job ended"} {
		if line[key] != want {
			t.Errorf("%s is %v, want %s", key, line[key], want)
		}
	}
}

func TestTheLevelChangesWhileRunningAndChildrenFollow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, telemetry.LogConfig{})
	child := log.With().Str("a", "b").Logger()
	for _, tc := range []struct {
		level config.Level
		want  string
	}{{config.LevelInfo, "info,warn"}, {config.LevelDebug, "debug,info,warn"}, {config.LevelError, ""}, {config.LevelOff, ""}, {config.LevelWarn, "warn"}} {
		out.Reset()
		log.SetLevel(tc.level)
		child.Debug().Msg("")
		child.Info().Msg("")
		child.Warn().Msg("")
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var l struct{ Level string }
			if json.Unmarshal([]byte(line), &l) == nil {
				got = append(got, l.Level)
			}
		}
		if strings.Join(got, ",") != tc.want || log.Level() != tc.level {
			t.Errorf("at %s (says %s): logged %v", tc.level, log.Level(), got)
		}
	}
}

func TestAFloodIsCutAndStillFollowsTheLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLog(&out, telemetry.LogConfig{})
	flood := telemetry.Flood(log.Logger, 3, time.Hour)
	for range 100 {
		flood.Debug().Msg("hidden")
		flood.Warn().Msg("seen")
	}
	if got := strings.Count(out.String(), "seen"); got != 3 {
		t.Errorf("%d lines", got)
	}
	if strings.Contains(out.String(), "hidden") {
		t.Error("a line below the level came through")
	}
}

func TestPrettyIsForPeopleAndJSONTheDefaultForAPipe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	pretty := newLog(&out, telemetry.LogConfig{Format: telemetry.LogPretty})
	pretty.Error().Err(errors.New("boom")).Msg("it broke")
	if strings.HasPrefix(out.String(), "{") || !strings.Contains(out.String(), "it broke") {
		t.Errorf("pretty wrote %q", out.String())
	}
	out.Reset()
	plain := newLog(&out, telemetry.LogConfig{})
	plain.Error().Msg("it broke")
	if !strings.HasPrefix(out.String(), "{") {
		t.Errorf("a pipe got %q", out.String())
	}
}

func TestEveryLevelOfTheSettingsIsALevelOfTheLog(t *testing.T) {
	t.Parallel()
	log := newLog(&bytes.Buffer{}, telemetry.LogConfig{})
	for _, level := range config.Levels() {
		log.SetLevel(level)
		if log.Level() != level {
			t.Errorf("%s became %s", level, log.Level())
		}
	}
}
