package bus_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

const goodExec = `{"v":1,"job_id":"job-1","conversation_id":"c-1","argv":["echo","hi"]}`

// edit returns goodExec with fields set; a nil value removes the field.
func edit(t *testing.T, set map[string]any) []byte {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(goodExec), &m); err != nil {
		t.Fatal(err)
	}
	for k, v := range set {
		if v == nil {
			delete(m, k)
			continue
		}
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseExecReadsEveryField(t *testing.T) {
	t.Parallel()
	body := `{"v":1,"job_id":"j","conversation_id":"c","drive_id":"d/1","shell":"echo \u00e9","cwd":"/workspace/a",
		"env":{"A":"1"},"stdin":"aGk=","timeout_ms":100,"stream_bytes":5,"on_output_limit":"kill",
		"deadline":"2026-01-02T03:04:05+01:00","on_limit":"wait","order":"serial","fresh_start":true}`
	r, err := bus.ParseExec([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Shell != "echo é" || string(r.Stdin) != "hi" || r.Env["A"] != "1" || !r.FreshStart || r.Cwd != "/workspace/a" ||
		r.DriveID != "d/1" || !r.Deadline.Equal(time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC)) {
		t.Fatalf("got %+v", r)
	}
	if r.Timeout() != 100*time.Millisecond || r.OutputCap(9) != 5 || !r.Kills() || !r.Waits() || !r.Serial() {
		t.Fatalf("accessors of %+v", r)
	}
}

func TestParseExecDefaultsAreTheContracts(t *testing.T) {
	t.Parallel()
	r, err := bus.ParseExec([]byte(goodExec))
	if err != nil {
		t.Fatal(err)
	}
	if r.Timeout() != 2*time.Minute || r.OutputCap(0) != 8<<20 || r.OutputCap(7) != 7 || r.Kills() || r.Waits() || r.Serial() {
		t.Fatalf("got %+v", r)
	}
	if err := r.Check(time.Now()); err != nil {
		t.Fatalf("a request without a deadline never expires: %v", err)
	}
}

// case 61: each cause has a code of its own, and the field is named. case 84: ids that would widen a subject are
// refused before any subject is built.
func TestCase61And84ParseExecNamesTheFaultyField(t *testing.T) {
	t.Parallel()
	many := make([]string, bus.MaxArgv+1)
	for i := range many {
		many[i] = "a"
	}
	bigEnv := map[string]string{"A": strings.Repeat("x", bus.MaxEnvBytes)}
	crowdedEnv := map[string]string{}
	for i := range bus.MaxEnv + 1 {
		crowdedEnv["A"+strings.Repeat("_", i)] = ""
	}
	cases := map[string]struct {
		set    map[string]any
		field  string
		reason plan.Reason
	}{
		"no version":           {map[string]any{"v": nil}, "v", plan.ReasonInvalidRequest},
		"another version":      {map[string]any{"v": 2}, "v", plan.ReasonInvalidRequest},
		"unknown field":        {map[string]any{"user": "root"}, "user", plan.ReasonInvalidRequest},
		"name in another case": {map[string]any{"Shell": "x"}, "Shell", plan.ReasonInvalidRequest},
		"job with a dot":       {map[string]any{"job_id": "a.b"}, "job_id", plan.ReasonInvalidRequest},
		"job with a star":      {map[string]any{"job_id": "*"}, "job_id", plan.ReasonInvalidRequest},
		"job with >":           {map[string]any{"job_id": ">"}, "job_id", plan.ReasonInvalidRequest},
		"job with CRLF":        {map[string]any{"job_id": "a\r\nPUB x"}, "job_id", plan.ReasonInvalidRequest},
		"job with a space":     {map[string]any{"job_id": "a b"}, "job_id", plan.ReasonInvalidRequest},
		"job with a tab":       {map[string]any{"job_id": "a\tb"}, "job_id", plan.ReasonInvalidRequest},
		"job empty":            {map[string]any{"job_id": ""}, "job_id", plan.ReasonInvalidRequest},
		"job too long":         {map[string]any{"job_id": strings.Repeat("a", 65)}, "job_id", plan.ReasonInvalidRequest},
		"no job":               {map[string]any{"job_id": nil}, "job_id", plan.ReasonInvalidRequest},
		"conversation bad":     {map[string]any{"conversation_id": "ä"}, "conversation_id", plan.ReasonInvalidRequest},
		"drive with a space":   {map[string]any{"drive_id": "a b"}, "drive_id", plan.ReasonInvalidRequest},
		"drive empty":          {map[string]any{"drive_id": ""}, "drive_id", plan.ReasonInvalidRequest},
		"both commands":        {map[string]any{"shell": "true"}, "argv", plan.ReasonInvalidRequest},
		"no command":           {map[string]any{"argv": nil}, "argv", plan.ReasonEmptyCommand},
		"argv empty":           {map[string]any{"argv": []string{}}, "argv", plan.ReasonEmptyCommand},
		"program empty":        {map[string]any{"argv": []string{"", "x"}}, "argv", plan.ReasonEmptyCommand},
		"shell blank":          {map[string]any{"argv": nil, "shell": " \n\t"}, "shell", plan.ReasonEmptyCommand},
		"argv too many":        {map[string]any{"argv": many}, "argv", plan.ReasonInvalidRequest},
		"shell too large":      {map[string]any{"argv": nil, "shell": strings.Repeat("x", bus.MaxCommand+1)}, "shell", plan.ReasonCommandTooLarge},
		"argv too large":       {map[string]any{"argv": []string{"a", strings.Repeat("x", bus.MaxCommand-1)}}, "argv", plan.ReasonCommandTooLarge},
		"argv no list":         {map[string]any{"argv": "echo"}, "argv", plan.ReasonInvalidRequest},
		"argv of numbers":      {map[string]any{"argv": []int{1}}, "argv", plan.ReasonInvalidRequest},
		"argv with NUL":        {map[string]any{"argv": []string{"a\x00b"}}, "argv", plan.ReasonInvalidRequest},
		"argv nested":          {map[string]any{"argv": []any{[]string{"a"}}}, "argv", plan.ReasonInvalidRequest},
		"cwd empty":            {map[string]any{"cwd": ""}, "cwd", plan.ReasonInvalidRequest},
		"cwd long":             {map[string]any{"cwd": strings.Repeat("a", 4097)}, "cwd", plan.ReasonInvalidRequest},
		"env name":             {map[string]any{"env": map[string]string{"1A": ""}}, "env", plan.ReasonInvalidRequest},
		"env name empty":       {map[string]any{"env": map[string]string{"": ""}}, "env", plan.ReasonInvalidRequest},
		"env reserved":         {map[string]any{"env": map[string]string{"WAKEBUS_JOB": "x"}}, "env", plan.ReasonInvalidRequest},
		"env preload":          {map[string]any{"env": map[string]string{"LD_PRELOAD": "x"}}, "env", plan.ReasonInvalidRequest},
		"env null":             {map[string]any{"env": map[string]any{"A": json.RawMessage("null")}}, "env", plan.ReasonInvalidRequest},
		"env too large":        {map[string]any{"env": bigEnv}, "env", plan.ReasonInvalidRequest},
		"env too many":         {map[string]any{"env": crowdedEnv}, "env", plan.ReasonInvalidRequest},
		"stdin no base64":      {map[string]any{"stdin": "%%%"}, "stdin", plan.ReasonInvalidRequest},
		"stdin too large":      {map[string]any{"stdin": make([]byte, bus.MaxStdin+1)}, "stdin", plan.ReasonInvalidRequest},
		"timeout zero":         {map[string]any{"timeout_ms": 0}, "timeout_ms", plan.ReasonInvalidRequest},
		"timeout short":        {map[string]any{"timeout_ms": 99}, "timeout_ms", plan.ReasonInvalidRequest},
		"timeout long":         {map[string]any{"timeout_ms": 43_200_001}, "timeout_ms", plan.ReasonInvalidRequest},
		"timeout fraction":     {map[string]any{"timeout_ms": 100.5}, "timeout_ms", plan.ReasonInvalidRequest},
		"timeout huge":         {map[string]any{"timeout_ms": json.RawMessage("1e400")}, "timeout_ms", plan.ReasonInvalidRequest},
		"stream over hard cap": {map[string]any{"stream_bytes": 64<<20 + 1}, "stream_bytes", plan.ReasonInvalidRequest},
		"stream zero":          {map[string]any{"stream_bytes": 0}, "stream_bytes", plan.ReasonInvalidRequest},
		"on_output_limit":      {map[string]any{"on_output_limit": "drop"}, "on_output_limit", plan.ReasonInvalidRequest},
		"on_limit":             {map[string]any{"on_limit": ""}, "on_limit", plan.ReasonInvalidRequest},
		"order":                {map[string]any{"order": "Serial"}, "order", plan.ReasonInvalidRequest},
		"wait, no deadline":    {map[string]any{"on_limit": "wait"}, "deadline", plan.ReasonInvalidRequest},
		"deadline no zone":     {map[string]any{"deadline": "2026-01-02T03:04:05"}, "deadline", plan.ReasonInvalidRequest},
		"null field":           {map[string]any{"cwd": json.RawMessage("null")}, "cwd", plan.ReasonInvalidRequest},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bus.ParseExec(edit(t, c.set))
			var inv *bus.InvalidRequest
			if !errors.As(err, &inv) {
				t.Fatalf("got %v, want an InvalidRequest", err)
			}
			if inv.Field != c.field || inv.Reason != c.reason {
				t.Fatalf("got %q %s (%v), want %q %s", inv.Field, inv.Reason, err, c.field, c.reason)
			}
		})
	}
}

func TestParseExecRefusesWhatIsNotOneCleanObject(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty":                "",
		"blank":                "  \n",
		"a list":               "[1]",
		"a string":             `"x"`,
		"null":                 "null",
		"trailing data":        goodExec + `{"v":1}`,
		"trailing text":        goodExec + "x",
		"invalid UTF-8":        strings.Replace(goodExec, "hi", "\xff", 1),
		"half a character":     strings.Replace(goodExec, "hi", `\ud800`, 1),
		"the other half":       strings.Replace(goodExec, "hi", `\udc00x`, 1),
		"two first halves":     strings.Replace(goodExec, "hi", `\ud800\ud800`, 1),
		"equal keys":           strings.Replace(goodExec, `"v":1`, `"v":1,"v":1`, 1),
		"equal keys by escape": strings.Replace(goodExec, `"v":1`, `"v":1,"\u0076":1`, 1),
		"equal keys in env":    strings.Replace(goodExec, `"v":1`, `"v":1,"env":{"A":"1","A":"2"}`, 1),
		"deep nesting":         strings.Replace(goodExec, `"hi"`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000), 1),
		"too large":            goodExec + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inv *bus.InvalidRequest
			if _, err := bus.ParseExec([]byte(body)); !errors.As(err, &inv) || inv.Reason != plan.ReasonInvalidRequest {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestParseExecTakesAWholeCharacterWrittenInTwoEscapes(t *testing.T) {
	t.Parallel()
	r, err := bus.ParseExec([]byte(strings.Replace(goodExec, "hi", `\\ud800 \ud83d\ude00`, 1)))
	if err != nil || r.Argv[1] != `\ud800 😀` {
		t.Fatalf("got %v, %v", r, err)
	}
}

func TestParseErrorsNeverRepeatWhatTheFieldHeld(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-sentinel"
	for _, set := range []map[string]any{
		{"job_id": secret + "."}, {"env": map[string]string{"9" + secret: secret}}, {"stdin": secret + "%"},
		{"deadline": secret}, {"on_limit": secret}, {"timeout_ms": secret}, {"cwd": []string{secret}},
	} {
		_, err := bus.ParseExec(edit(t, set))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Fatalf("%v gives %v", set, err)
		}
	}
}

func TestAHigherHardCapLetsARequestAskForMore(t *testing.T) {
	t.Parallel()
	body := edit(t, map[string]any{"stream_bytes": 65 << 20})
	if _, err := bus.ParseExec(body); err == nil {
		t.Fatal("65 MiB passed under the default cap")
	}
	if _, err := bus.ParseExec(body, bus.WithHardCap(128<<20)); err != nil {
		t.Fatal(err)
	}
}

// case 57: a passed deadline is "expired", never "denied"; a caller without one is never seen as gone.
func TestCase57ADeadlineThatPassedIsExpiredAndOneTooFarIsInvalid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *bus.ExecRequest {
		x := now.Add(d)
		return &bus.ExecRequest{Deadline: &x}
	}
	var inv *bus.InvalidRequest
	for _, d := range []time.Duration{0, -time.Millisecond, -24 * time.Hour} {
		if err := at(d).Check(now); !errors.Is(err, bus.ErrDeadlinePassed) || errors.As(err, &inv) {
			t.Fatalf("%v: got %v", d, err)
		}
	}
	for _, d := range []time.Duration{time.Nanosecond, time.Minute, 12*time.Hour + 5*time.Second} {
		if err := at(d).Check(now); err != nil {
			t.Fatalf("%v: got %v", d, err)
		}
	}
	if err := at(12*time.Hour + 6*time.Second).Check(now); !errors.As(err, &inv) || inv.Field != "deadline" {
		t.Fatalf("got %v", err)
	}
	late := now.Add(-time.Second)
	if err := (&bus.TerminalRequest{Deadline: &late}).Check(now); !errors.Is(err, bus.ErrDeadlinePassed) {
		t.Fatalf("terminal: got %v", err)
	}
}

func TestParseTerminalChecksWindowAndIDs(t *testing.T) {
	t.Parallel()
	good := `{"v":1,"open_id":"o","page_id":"p","cols":80,"rows":24}`
	r, err := bus.ParseTerminal([]byte(good))
	if err != nil || r.Cols != 80 || r.Rows != 24 || r.OpenID != "o" || r.PageID != "p" {
		t.Fatalf("got %+v, %v", r, err)
	}
	for want, body := range map[string]string{
		"cols":    strings.Replace(good, "80", "0", 1),
		"rows":    strings.Replace(good, "24", "1001", 1),
		"open_id": strings.Replace(good, `"o"`, `"o.o"`, 1),
		"page_id": strings.Replace(good, `,"page_id":"p"`, "", 1),
		"v":       strings.Replace(good, `"v":1`, `"v":0`, 1),
		"job_id":  strings.Replace(good, `"v":1`, `"v":1,"job_id":"x"`, 1),
	} {
		var inv *bus.InvalidRequest
		if _, err := bus.ParseTerminal([]byte(body)); !errors.As(err, &inv) || inv.Field != want {
			t.Fatalf("%s: got %v", want, err)
		}
	}
}

func TestParseEndWantsExactlyOneSession(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		`{"v":1,"job_id":"e","conversation_id":"c"}`:               true,
		`{"v":1,"job_id":"e","page_id":"p","drive_id":"d"}`:        true,
		`{"v":1,"job_id":"e"}`:                                     false,
		`{"v":1,"job_id":"e","conversation_id":"c","page_id":"p"}`: false,
		`{"v":1,"job_id":"e","conversation_id":""}`:                false,
		`{"v":1,"conversation_id":"c"}`:                            false,
	} {
		if _, err := bus.ParseEnd([]byte(body)); (err == nil) != ok {
			t.Fatalf("%s: got %v", body, err)
		}
	}
}

func TestParseHistoryTakesNumbersThatEveryReaderKeeps(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		`{"v":1,"job_id":"j"}`:                                 true,
		`{"v":1,"job_id":"j","run":2,"from_seq":0}`:            true,
		`{"v":1,"job_id":"j","from_seq":9007199254740991}`:     true,
		`{"v":1,"job_id":"j","from_seq":9007199254740992}`:     false,
		`{"v":1,"job_id":"j","from_seq":18446744073709551615}`: false,
		`{"v":1,"job_id":"j","from_seq":18446744073709551616}`: false,
		`{"v":1,"job_id":"j","from_seq":-1}`:                   false,
		`{"v":1,"job_id":"j","from_seq":1e300}`:                false,
		`{"v":1,"job_id":"j","run":-1}`:                        false,
		`{"v":1,"job_id":"j","run":2147483648}`:                false,
	} {
		if _, err := bus.ParseHistory([]byte(body)); (err == nil) != ok {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

func TestParseCancelTakesAnEmptyBody(t *testing.T) {
	t.Parallel()
	if r, err := bus.ParseCancel(nil); err != nil || *r != (bus.CancelRequest{}) {
		t.Fatalf("got %v, %v", r, err)
	}
	if r, err := bus.ParseCancel([]byte(`{"by":"ann","why":"typo"}`)); err != nil || r.By != "ann" || r.Why != "typo" {
		t.Fatalf("got %v, %v", r, err)
	}
	for _, body := range []string{`{"who":"x"}`, `{"by":"` + strings.Repeat("a", 129) + `"}`, `{"why":"` + strings.Repeat("a", 1025) + `"}`} {
		if _, err := bus.ParseCancel([]byte(body)); err == nil {
			t.Fatalf("%.40s passed", body)
		}
	}
}

func TestRequestIDIsFoundInBodiesThatAreOtherwiseInvalid(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"v":9,"job_id":"j-1","junk":[{"job_id":"no"}]}`: "j-1",
		`{"open_id":"o"}`:                  "o",
		`{"job_id":"j","argv":["x"`:        "j",
		`{"job_id":"a","job_id":"b"}`:      "",
		`{"job_id":"a","open_id":"b"}`:     "",
		`{"job_id":"a.b"}`:                 "",
		`{"job_id":7}`:                     "",
		`{"env":{"job_id":"x"}}`:           "",
		`["job_id","x"]`:                   "",
		``:                                 "",
		`{"job_id":"a"` + "\xff":           "a",
		strings.Repeat(" ", 2<<20) + `{}`:  "",
		`{"x":` + strings.Repeat("[", 999): "",
	} {
		id, ok := bus.RequestID([]byte(body))
		if ok != (want != "") || ok && id != want {
			t.Fatalf("%.60s: got %q %v, want %q", body, id, ok, want)
		}
	}
}

func TestAParsedRequestSurvivesBeingWrittenAndParsedAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
		text := rapid.StringMatching(`[^\x00]{0,40}`)
		r := &bus.ExecRequest{V: 1, JobID: token.Draw(t, "job"), ConversationID: token.Draw(t, "conversation"),
			Stdin:      rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "stdin"),
			Env:        rapid.MapOfN(rapid.StringMatching(`[A-Z][A-Z0-9_]{0,8}`), text, 0, 5).Draw(t, "env"),
			FreshStart: rapid.Bool().Draw(t, "fresh")}
		if rapid.Bool().Draw(t, "shell?") {
			r.Shell = "x" + text.Draw(t, "shell")
		} else {
			r.Argv = append([]string{"p"}, rapid.SliceOfN(text, 0, 5).Draw(t, "argv")...)
		}
		delete(r.Env, "LD_PRELOAD")
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := bus.ParseExec(body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		again, _ := json.Marshal(got)
		if string(again) != string(body) {
			t.Fatalf("%s became %s", body, again)
		}
	})
}

func FuzzParseExec(f *testing.F) {
	f.Add([]byte(goodExec))
	f.Add([]byte(`{"v":1,"job_id":"a","conversation_id":"b","shell":"\ud83d\ude00","stdin":"` + base64.StdEncoding.EncodeToString([]byte("x")) + `"}`))
	f.Add([]byte(`{"\u0000":[[[`))
	f.Add([]byte(`{"a":"\ud800\u"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, ok := bus.RequestID(data)
		if ok && !plan.ValidToken(id) {
			t.Fatalf("unusable id %q", id)
		}
		r, err := bus.ParseExec(data)
		if err != nil {
			var inv *bus.InvalidRequest
			if !errors.As(err, &inv) || !inv.Reason.Valid() {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !ok || id != r.JobID {
			t.Fatalf("valid body, but RequestID gives %q %v", id, ok)
		}
		if (len(r.Argv) == 0) == (r.Shell == "") || r.CommandSize() > bus.MaxCommand || !plan.ValidToken(r.ConversationID) {
			t.Fatalf("passed: %+v", r)
		}
	})
}

func FuzzParseOthers(f *testing.F) {
	f.Add([]byte(`{"v":1,"open_id":"o","page_id":"p","cols":80,"rows":24}`))
	f.Add([]byte(`{"v":1,"job_id":"e","page_id":"p"}`))
	f.Add([]byte(`{"by":"a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := bus.ParseTerminal(data); err == nil && (!plan.ValidToken(r.OpenID) || r.Cols < 1) {
			t.Fatalf("passed: %+v", r)
		}
		if r, err := bus.ParseEnd(data); err == nil && (r.PageID == "") == (r.ConversationID == "") {
			t.Fatalf("passed: %+v", r)
		}
		if r, err := bus.ParseCancel(data); err == nil && len(r.By) > 128 {
			t.Fatalf("passed: %+v", r)
		}
	})
}
