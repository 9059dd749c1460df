package sprites_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

func FuzzBinaryFrame(f *testing.F) {
	for _, seed := range [][]byte{nil, {1}, {1, 'a'}, {2, 0}, {3}, {3, 255}, {3, 0, 0, 0, 7}, {3, 1, 2}, {4}, {0, 1}, {99, 1}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := sprites.ParseBinary(b)
		switch {
		case got.Output:
			if len(b) < 2 || b[0] != byte(got.Stream) || !bytes.Equal(got.Data, b[1:]) || got.Stream != sprites.Stdout && got.Stream != sprites.Stderr {
				t.Errorf("%x: %+v", b, got)
			}
		case got.Ended:
			if b[0] != 3 || got.Code != sprites.NoCode && (got.Code < 0 || got.Code > 255) || len(b) == 2 && got.Code != int(b[1]) || len(b) == 1 && got.Code != sprites.NoCode {
				t.Errorf("%x: %+v", b, got)
			}
		case got.Info:
			t.Errorf("%x introduces a session", b)
		}
	})
}

func FuzzTextFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"session_info","session_id":"20","created":1785904678,"tty":true}`, `{"type":"session_info","session_id":20}`,
		`{"type":"exit","exit_code":42}`, `{"type":"exit","exit_code":-1}`, `{"type":"exit"}`, `{"type":"debug","msg":"x"}`,
		`{"type":"session_info","session_id":"../x"}`, `[]`, `null`, ``, `{"type":1}`, `{"type":"exit","exit_code":1e99}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := sprites.ParseText(b)
		if got.Output {
			t.Errorf("%q is output", b)
		}
		if got.Ended && got.Code != sprites.NoCode && (got.Code < 0 || got.Code > 255) {
			t.Errorf("%q: code %d", b, got.Code)
		}
		if got.Info && (got.ID == "" || strings.ContainsAny(got.ID, "/?#%. ")) {
			t.Errorf("%q: id %q", b, got.ID)
		}
	})
}

func FuzzErrorBody(f *testing.F) {
	for _, seed := range []string{
		`{"error":"sprite_creation_rate_limited","retry_after_seconds":30}`, `{"errors":["invalid"]}`, `{"error":"no","code":"ENOENT"}`,
		`plain`, `{"error":{"a":1}}`, `{"retry_after_seconds":-1}`, `{"retry_after_seconds":1e308}`, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		code, hint := sprites.ParseErrorBody(b)
		if hint < 0 || hint > 15*time.Minute {
			t.Errorf("%q: hint %s", b, hint)
		}
		if len(code) > 64 || strings.ContainsAny(code, " \n=:/") {
			t.Errorf("%q: code %q", b, code)
		}
	})
}

func FuzzGuardFile(f *testing.F) {
	for _, seed := range []string{
		"m line 41 100 n1\nm line exit 0\nm end dead\n", "m none\n", "noise\nm line 41 100 n1\nm end alive", "m line x\nm line limit\nm end dead\n", "m end \n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		state, ok := sprites.ParseGuard(sprites.Marked(b, "m"))
		if !ok {
			return
		}
		if state.Exit != nil && (*state.Exit < 0 || *state.Exit > 255) || state.Pid < 0 || !state.Exists && (state.Pid != 0 || state.Exit != nil || state.Alive) {
			out, _ := json.Marshal(state)
			t.Errorf("%q: %s", b, out)
		}
	})
}

func FuzzAlign(f *testing.F) {
	f.Add([]byte("abc"), int64(3), []byte("xabcdef"), 2)
	f.Add([]byte("yy"), int64(9), []byte("yyyy"), 1)
	f.Add([]byte{}, int64(0), []byte("new"), 3)
	f.Fuzz(func(t *testing.T, tail []byte, delivered int64, replay []byte, size int) {
		if len(tail) > sprites.TailMax || delivered < int64(len(tail)) || size < 1 {
			t.Skip()
		}
		var cut [][]byte
		for rest := replay; len(rest) > 0; {
			n := min(size, len(rest))
			cut = append(cut, rest[:n])
			rest = rest[n:]
		}
		got, proven := sprites.Align(tail, delivered, cut)
		if !bytes.HasSuffix(replay, got) {
			t.Errorf("given out what is no end of the replay")
		}
		if proven && len(tail) > 0 && bytes.Count(replay, tail) != 1 {
			t.Errorf("proven by %d occurrences", bytes.Count(replay, tail))
		}
	})
}
