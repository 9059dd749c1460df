package terminal_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/attach"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// gatewayVariable holds the settings, as JSON, of this binary when it is to be a gateway that a test can kill.
const gatewayVariable = "WAKEBUS_TEST_GATEWAY"

// gatewayProcess is the whole life of such a process.
func gatewayProcess(settings string) int {
	var values map[string]string
	if err := json.Unmarshal([]byte(settings), &values); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, _, err := config.Load(config.RoleGateway, func(k string) (string, bool) { v, ok := values[k]; return v, ok }, nil)
	if err == nil {
		var app *terminal.App
		app, err = terminal.NewApp(ctx, cfg, terminal.AppConfig{Log: telemetry.NewLog(telemetry.LogConfig{Output: io.Discard}), Quarantine: time.Millisecond})
		if err == nil {
			fmt.Println(app.URL())
			err = app.Run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process starts a gateway in a process of its own and returns it with its address.
func (s *stack) process() (*exec.Cmd, string) {
	s.t.Helper()
	settings, err := json.Marshal(s.settings)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), gatewayVariable+"="+string(settings))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatalf("gateway process said nothing: %v", err)
	}
	return cmd, strings.TrimPrefix(strings.TrimSpace(line), "http://")
}

// While a shell prints numbered lines the gateway is killed with -9 and the socket is reset, again and again: what the
// client was shown, the recording and the shell's own log are equal, or differ by exactly the gaps that were said.
func TestKillingTheGatewayLosesAndRepeatsNothing(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("script is not installed")
	}
	moments, lines := 4, 600
	if os.Getenv("WAKEBUS_SOAK") != "" {
		moments, lines = 20, 6000
	}
	s := newStack(t)
	dir := t.TempDir()
	s.settings["WAKEBUS_TERMINAL_RECORDINGS"] = dir
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	p := newProxy(t)
	cmd, addr := s.process()
	p.set(addr, false)

	person := &personAt{screen: newScreen(), notices: newScreen(), end: make(chan attach.End, 1)}
	in, keys := io.Pipe()
	person.keys = keys
	cfg := attach.Config{URL: p.url(), Page: "kill", Client: "cli", Input: in, Output: person.screen,
		Notice: func(l string) { fmt.Fprintln(person.notices, l) }, Size: func() frame.Size { return frame.Size{Cols: 80, Rows: 24} }}
	go func() {
		end, err := attach.Run(context.Background(), cfg)
		if err != nil {
			t.Errorf("attach: %v", err)
		}
		in.Close()
		person.end <- end
	}()
	t.Cleanup(func() { keys.Close() })
	fmt.Fprintf(keys, "PS1=; stty -echo; cd /workspace; echo rea\"\"dy\r")
	person.screen.sees("ready")
	fmt.Fprintf(keys, "exec script -q -f log -c 'i=0; while [ $i -lt %d ]; do printf \"%%06d\\n\" $i; i=$((i+1)); sleep 0.005; done; echo the last line'\r", lines)
	for i := range moments {
		at := (i*lines + random.IntN(lines)) / (moments + 1)
		person.screen.sees(fmt.Sprintf("%06d", at))
		if i%2 == 0 {
			cmd.Process.Kill()
			cmd.Wait()
			cmd, addr = s.process()
			p.set(addr, true)
		} else {
			p.set("", true)
		}
		p.set("", false)
	}
	person.screen.sees("the last line")
	if end := <-person.end; end.Reason != frame.ReasonExited && end.Reason != frame.ReasonGone {
		t.Errorf("ended with %+v", end)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()

	shown := person.screen.buf.String()
	want := shellLog(t, s, lines)
	_, recorded, markers := readCast(t, dir)
	compare(t, "shown", shown, want)
	compare(t, "recorded", recorded, want)
	t.Logf("%d bytes; %d resets shown, %d markers recorded; %s", len(want), strings.Count(shown, "\x1bc"), len(markers), person.notices.buf.String())
}

// shellLog is what script wrote, without its own first and last lines.
func shellLog(t *testing.T, s *stack, lines int) string {
	t.Helper()
	data, _, err := s.client().ReadFile(context.Background(), s.emulator.Sprites()[0].Name, "/workspace/log", 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	text = text[strings.Index(text, "000000"):]
	text = text[:strings.Index(text, "the last line")]
	if n := strings.Count(text, "\n"); n != lines {
		t.Fatalf("the shell's log has %d lines, want %d", n, lines)
	}
	return text
}

// compare holds got to want: equal from the first line on, but where a gap was said.
func compare(t *testing.T, what, got, want string) {
	t.Helper()
	i := strings.Index(got, "000000")
	if i < 0 {
		t.Fatalf("%s: no first line in %.200q", what, got)
	}
	j := strings.LastIndex(got, "the last line")
	if j < 0 {
		t.Fatalf("%s: no last line in %q", what, got[max(0, len(got)-200):])
	}
	parts := strings.Split(got[i:j], "\x1bc")
	if len(parts) == 1 {
		if parts[0] != want {
			t.Errorf("%s differs from the shell's own log: %d and %d bytes, first difference at %d", what, len(parts[0]), len(want), differ(parts[0], want))
		}
		return
	}
	for n, part := range parts { // each stretch between two gaps that were said must be one of the log
		if k := strings.Index(part, "0"); n > 0 && k >= 0 && strings.Contains(part, "ready") {
			part = part[strings.Index(part, "000000"):]
		}
		if !strings.Contains(want, part) {
			t.Errorf("%s: stretch %d is none of the log: %.100q", what, n, part)
		}
	}
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
