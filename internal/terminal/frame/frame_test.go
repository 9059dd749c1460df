package frame_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

func TestSizesThatCannotBeAreIgnoredNotFatal(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"type":"resize"}`, `{"type":"resize","cols":0,"rows":0}`, `{"type":"resize","cols":-1,"rows":24}`,
		`{"type":"resize","cols":null,"rows":24}`, `{"type":"resize","cols":"80","rows":24}`,
		`{"type":"resize","cols":1e9,"rows":24}`, `{"type":"resize","cols":80,"rows":1001}`,
		`{"type":"resize","cols":0.4,"rows":24}`, `{"type":"resize","cols":[80],"rows":{}}`,
	} {
		got, err := frame.ParseClient([]byte(body))
		if err != nil || got.Size != (frame.Size{}) {
			t.Errorf("%s gave %+v, %v", body, got.Size, err)
		}
	}
	got, err := frame.ParseClient([]byte(`{"type":"resize","cols":80.7,"rows":24}`))
	if err != nil || got.Size != (frame.Size{Cols: 80, Rows: 24}) {
		t.Errorf("a fractional width gave %+v, %v", got.Size, err)
	}
}

func TestWhatIsNoClientFrameIsRefused(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `null`, `[]`, `{}`, `{"type":"phase"}`, `{"type":"hello"}`, `{"type":"hello","client":"a b"}`,
		`{"type":"hello","client":"a","offset":-1}`, `{"type":"grant"}`, `{"type":"ack","output":-1}`,
		`{"type":"detach"} x`, `{"type":"detach"}{"type":"detach"}`, "{\"type\":\"\xff\"}", `{"type":"resize","cols":NaN,"rows":1}`,
		`{"type":"grant","grant":"` + strings.Repeat("a", frame.MaxControl) + `"}`,
	} {
		if _, err := frame.ParseClient([]byte(body)); !errors.Is(err, frame.ErrMalformed) {
			t.Errorf("%.60q gave %v", body, err)
		}
	}
}

func TestAClientFrameSurvivesTheWire(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := frame.Client{Type: frame.TypeHello, Page: rapid.StringMatching(`[a-z]{0,10}`).Draw(t, "page"),
			ClientID: rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "client"), Offset: rapid.Int64Range(0, 1<<52).Draw(t, "offset"),
			Flow: rapid.Bool().Draw(t, "flow"), Tail: rapid.SliceOfN(rapid.Byte(), 1, frame.MaxTail).Draw(t, "tail"),
			Size: frame.Size{Cols: rapid.IntRange(1, frame.MaxSide).Draw(t, "cols"), Rows: rapid.IntRange(1, frame.MaxSide).Draw(t, "rows")}}
		out, err := frame.ParseClient(in.Encode())
		if err != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("%+v became %+v, %v", in, out, err)
		}
	})
}

func TestEveryCloseReasonHasItsCode(t *testing.T) {
	t.Parallel()
	for reason, want := range map[frame.CloseReason]int{
		frame.ReasonExited: 1000, frame.ReasonGone: 1000, frame.ReasonDetached: 1000, frame.ReasonRestarting: 1012,
		frame.ReasonFailed: 1012, frame.ReasonRevoked: 4401, frame.ReasonDenied: 4403, frame.ReasonSlow: 4408,
		frame.ReasonReplaced: 4409, frame.ReasonTooMany: 4429,
	} {
		if got := reason.Status(); got != want {
			t.Errorf("%s closes with %d, want %d", reason, got, want)
		}
	}
}

func TestAnErrorAlwaysSaysFatalOrNot(t *testing.T) {
	t.Parallel()
	for _, fatal := range []bool{true, false} {
		out, err := frame.ParseServer(frame.NewError(frame.CodeInputTooLarge, "too large", "home", fatal).Encode())
		if err != nil || out.Fatal == nil || *out.Fatal != fatal || out.Terminal != "home" {
			t.Errorf("fatal %v became %+v, %v", fatal, out, err)
		}
	}
}

func FuzzParseClient(f *testing.F) {
	f.Add([]byte(`{"type":"hello","client":"c","page":"p","cols":80,"rows":24,"tail":"aGk="}`))
	f.Add([]byte(`{"type":"resize","cols":1e400,"rows":-0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := frame.ParseClient(data)
		if err != nil {
			if !errors.Is(err, frame.ErrMalformed) {
				t.Fatalf("unclassed error %v", err)
			}
			return
		}
		if c.Size != (frame.Size{}) && !c.Size.Valid() {
			t.Fatalf("believed the size %+v", c.Size)
		}
		again, err := frame.ParseClient(c.Encode())
		if len(c.Encode()) <= frame.MaxControl && (err != nil || again.ClientID != c.ClientID || !bytes.Equal(again.Tail, c.Tail)) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

func FuzzParseServer(f *testing.F) {
	f.Add(frame.NewPhase(frame.PhaseReplaying, "s", 7).Encode())
	f.Add(frame.NewGap(-1).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := frame.ParseServer(data)
		if err == nil {
			s.Encode()
		} else if !errors.Is(err, frame.ErrMalformed) {
			t.Fatalf("unclassed error %v", err)
		}
	})
}
