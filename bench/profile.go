package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// profileShare is one part's share of a profile.
type profileShare struct {
	Part  string  `json:"part"`
	Share float64 `json:"share"`
}

// parts name who a function's cost belongs to, by its package; the first match of a stack, from its leaf, counts.
var parts = []struct{ prefix, part string }{
	{"github.com/wakebus/wakebus/internal/sprites/emulator", "the emulator (in production: the platform)"},
	{"github.com/nats-io/nats-server", "the broker"},
	{"github.com/nats-io/nats%2ego", "the client of the broker"},
	{"github.com/nats-io/nats.go", "the client of the broker"},
	{"github.com/wakebus/wakebus/internal/sprites", "the Sprites client: a fresh connection and WebSocket per exec"},
	{"github.com/coder/websocket", "the Sprites client: a fresh connection and WebSocket per exec"},
	{"github.com/wakebus/wakebus/internal/lease", "the lease and its Redis client"},
	{"github.com/redis/go-redis", "the lease and its Redis client"},
	{"github.com/wakebus/wakebus/internal/bus", "journal, queue and links"},
	{"github.com/wakebus/wakebus/internal/session", "journal, queue and links"},
	{"github.com/wakebus/wakebus/internal/bench", "the caller that measures"},
	{"github.com/wakebus/wakebus/internal/", "the rest of the worker"},
	{"net/http", "HTTP on both sides of the Sprites API"},
}

// The five largest before sockets were dialled without a transport around them, requests pulled over one subscription, and
// marks and links read beside the lease (2026-11-30, 2,000 jobs, instant emulator).
var (
	profileBefore = []profileShare{
		{"the broker", 18}, {"HTTP on both sides of the Sprites API", 16}, {"the client of the broker", 13},
		{"the Sprites client: a fresh connection and WebSocket per exec", 13}, {"journal, queue and links", 11},
	}
	allocsBefore = []profileShare{
		{"the broker", 26}, {"HTTP on both sides of the Sprites API", 17}, {"the client of the broker", 16},
		{"the Sprites client: a fresh connection and WebSocket per exec", 14}, {"journal, queue and links", 13},
	}
	memoryBefore = memoryFigures{Bytes: 251 << 10, Objects: 2460}
)

// shares sums a profile up by part and gives the five largest.
func shares(data []byte, sampleType string) ([]profileShare, error) {
	p, err := profile.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == sampleType })
	if index < 0 {
		return nil, fmt.Errorf("the profile has no %s", sampleType)
	}
	sums, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		sums[partOf(s)] += s.Value[index]
		total += s.Value[index]
	}
	if total == 0 {
		return []profileShare{{"too little to be sampled", 100}}, nil
	}
	var out []profileShare
	for part, v := range sums {
		out = append(out, profileShare{part, 100 * float64(v) / float64(total)})
	}
	slices.SortFunc(out, func(x, y profileShare) int { return cmp.Compare(y.Share, x.Share) })
	return out[:min(5, len(out))], nil
}

func partOf(s *profile.Sample) string {
	for _, loc := range s.Location {
		for _, line := range loc.Line {
			for _, p := range parts {
				if line.Function != nil && strings.HasPrefix(line.Function.Name, p.prefix) {
					return p.part
				}
			}
		}
	}
	return "the Go runtime: scheduling, collection, system calls of others"
}
