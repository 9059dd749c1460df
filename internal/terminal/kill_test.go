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
	"path/filepath"
	"strconv"
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

// pageVariable names the built page's folder for such a process.
const pageVariable = "WAKEBUS_TEST_PAGE"

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
		app, err = terminal.NewApp(ctx, cfg, terminal.AppConfig{Log: telemetry.NewLog(telemetry.LogConfig{Output: io.Discard}), Quarantine: time.Millisecond,
			PageDir: os.Getenv(pageVariable)})
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

// breaker breaks what lies between a client and its shell at random moments: the gateway is killed with -9, or the
// socket reset.
type breaker struct {
	s       *stack
	net     *proxy
	gateway *exec.Cmd
	moments []int // numbers of lines, in order
	kills   int
}

// numbered starts a gateway that can be killed behind a network that can be cut, and draws the moments. The short form
// runs in CI from a fixed seed; WAKEBUS_SOAK=1 runs the long one, from WAKEBUS_SOAK_SEED or a new seed.
func numbered(t *testing.T) (b *breaker, lines int, recordings string) {
	t.Helper()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("script is not installed")
	}
	moments, lines, seed := 4, 600, uint64(1)
	if os.Getenv("WAKEBUS_SOAK") != "" {
		moments, lines, seed = 20, 6000, uint64(time.Now().UnixNano())
	}
	if given := os.Getenv("WAKEBUS_SOAK_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	recordings = t.TempDir()
	s := newStackWith(t, map[string]string{"WAKEBUS_TERMINAL_RECORDINGS": recordings})
	b = &breaker{s: s, net: newProxy(t)}
	for i := range moments {
		b.moments = append(b.moments, (i*lines+random.IntN(lines))/(moments+1))
	}
	s.settings["WAKEBUS_TERMINAL_ORIGINS"] = b.net.url()
	b.start()
	return b, lines, recordings
}

func (b *breaker) start() {
	cmd, addr := b.s.process()
	b.gateway = cmd
	b.net.set(addr, false)
}

// strike breaks it for the n-th time: every second time the gateway dies.
func (b *breaker) strike(n int) {
	if n%2 == 1 {
		b.net.set("", true)
		b.net.set("", false)
		return
	}
	b.kills++
	b.gateway.Process.Kill()
	b.gateway.Wait()
	b.net.set("", true)
	b.start()
}

// end lets the last gateway finish its recording.
func (b *breaker) end() {
	b.gateway.Process.Signal(syscall.SIGTERM)
	b.gateway.Wait()
}

// check holds what was shown and what was recorded to the shell's own log.
func (b *breaker) check(t *testing.T, shown []stretch, recordings string, lines int) {
	t.Helper()
	want := shellLog(t, b.s, lines)
	if err := agrees(shown, want); err != nil {
		t.Errorf("shown: %v", err)
	}
	_, text, markers := readCast(t, recordings)
	recorded := transcriptOf(text)
	if err := agrees(recorded, want); err != nil {
		t.Errorf("recorded: %v", err)
	}
	if gaps(recorded) != len(markers) {
		t.Errorf("%d gaps and %d markers were recorded", gaps(recorded), len(markers))
	}
	// A reset socket alone never costs a byte, and a gateway's death at most one gap.
	if n := gaps(shown); n > b.kills {
		t.Errorf("%d gaps were shown for %d deaths", n, b.kills)
	}
	t.Logf("%d bytes, %d deaths, %d gaps shown, %d recorded", len(want), b.kills, gaps(shown), gaps(recorded))
}

// While a shell prints numbered lines the gateway is killed with -9 and the socket is reset, again and again: what
// `terminal-gw attach` was shown, the recording and the shell's own log are equal, or differ by exactly the gaps that
// were said.
func TestKillingTheGatewayLosesAndRepeatsNothing(t *testing.T) {
	b, lines, recordings := numbered(t)
	person := &personAt{screen: newScreen(), notices: newScreen(), end: make(chan attach.End, 1)}
	in, keys := io.Pipe()
	person.keys = keys
	cfg := attach.Config{URL: b.net.url(), Page: "kill", Client: "cli", Input: in, Output: person.screen,
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
	for n, at := range b.moments {
		person.screen.sees(fmt.Sprintf("%06d", at))
		b.strike(n)
	}
	person.screen.sees(lastLine)
	if end := <-person.end; end.Reason != frame.ReasonExited && end.Reason != frame.ReasonGone {
		t.Errorf("ended with %+v", end)
	}
	b.end()
	b.check(t, transcriptOf(person.screen.buf.String()), recordings, lines)
}

// The same with the page in a real browser: what it drew, and what its terminal holds at the end.
func TestKillingTheGatewayLosesAndRepeatsNothingInARealBrowser(t *testing.T) {
	node := browser(t)
	page, err := filepath.Abs("page/dist")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(pageVariable, page)
	b, lines, recordings := numbered(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	result := filepath.Join(t.TempDir(), "drawn.json")
	cmd := exec.CommandContext(ctx, node, "check/soak.mjs", b.net.url(), result, strconv.Itoa(lines))
	cmd.Dir, cmd.Stderr = "page", os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	struck := 0
	for says := bufio.NewScanner(out); says.Scan(); {
		var at int
		if _, err := fmt.Sscanf(says.Text(), "at %d", &at); err != nil {
			t.Errorf("the browser's check said %q", says.Text())
		}
		if struck < len(b.moments) && at >= b.moments[struck] {
			b.strike(struck)
			struck++
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the browser's check failed: %v", err)
	}
	if struck != len(b.moments) {
		t.Errorf("it was broken %d times of %d", struck, len(b.moments))
	}
	b.end()
	shown, screen := drawn(t, result)
	b.check(t, shown, recordings, lines)
	last := strings.ReplaceAll(shown[len(shown)-1].text, "\r\n", "\n")
	if k := strings.Index(last, firstLine); k >= 0 {
		last = last[k:]
	}
	if !strings.Contains(screen, strings.TrimRight(last, "\n")) {
		t.Errorf("the terminal does not hold what was drawn last: %.300q", screen)
	}
}

// drawn reads what the browser drew, in stretches, and its terminal's text.
func drawn(t *testing.T, file string) (shown []stretch, screen string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Drawn []struct {
			Text    string
			Missing int64
		}
		Screen []string
		Ended  string
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if r.Ended != string(frame.ReasonExited) && r.Ended != string(frame.ReasonGone) {
		t.Errorf("ended with %s", r.Ended)
	}
	shown = []stretch{{}}
	for _, d := range r.Drawn {
		if d.Missing != 0 {
			shown = append(shown, stretch{missing: d.Missing})
		}
		shown[len(shown)-1].text += d.Text
	}
	return shown, strings.Join(r.Screen, "\n")
}

// shellLog is what script wrote, without its own first and last lines.
func shellLog(t *testing.T, s *stack, lines int) string {
	t.Helper()
	data, _, err := s.client().ReadFile(context.Background(), s.emulator.Sprites()[0].Name, "/workspace/log", 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	from, to := strings.Index(text, firstLine), strings.LastIndex(text, lastLine)
	if from < 0 || to < from {
		t.Fatalf("the shell's log is not whole: %d bytes", len(text))
	}
	text = text[from:to]
	if n := strings.Count(text, "\n"); n != lines {
		t.Fatalf("the shell's log has %d lines, want %d", n, lines)
	}
	return text
}
