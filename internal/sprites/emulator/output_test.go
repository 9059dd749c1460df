package emulator_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestReplayFromAnyOffsetIsTheTailOfWhatWasPrinted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 200).Draw(t, "limit")
		log := emulator.NewOutputLog(limit)
		var all, streams []byte
		for range rapid.IntRange(0, 30).Draw(t, "chunks") {
			p := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")
			s := rapid.SampledFrom([]byte{1, 2}).Draw(t, "stream")
			log.Append(s, p)
			all = append(all, p...)
			streams = append(streams, bytes.Repeat([]byte{s}, len(p))...)
		}
		log.Close()
		from := rapid.Int64Range(0, int64(len(all))+10).Draw(t, "from")
		at, got, gotStreams := log.Read(from, false)
		if at < min(from, int64(len(all))) || at > max(from, int64(len(all)-limit)) {
			t.Fatalf("asked for %d of %d, began at %d", from, len(all), at)
		}
		if !bytes.Equal(got, all[at:]) || !bytes.Equal(gotStreams, streams[at:]) {
			t.Fatalf("from %d: %q, want %q", at, got, all[at:])
		}
		at, got, gotStreams = log.Read(0, true)
		if len(got) > limit || !bytes.Equal(got, all[at:]) || bytes.ContainsRune(gotStreams, 2) {
			t.Fatalf("merged from %d: %q", at, got)
		}
	})
}
