package terminal_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/terminal"
)

// readCast reads a folder's one recording: its head, its output and its markers.
func readCast(t testing.TB, dir string) (head map[string]any, output string, markers []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.cast"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recordings: %v, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
		t.Fatalf("head %q: %v", lines.Text(), err)
	}
	last := 0.0
	for lines.Scan() {
		var e []any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || len(e) != 3 {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
		if at := e[0].(float64); at < last {
			t.Fatalf("time goes back at %q", lines.Text())
		} else {
			last = at
		}
		switch e[1] {
		case "o":
			output += e[2].(string)
		case "m":
			markers = append(markers, e[2].(string))
		}
	}
	return head, output, markers
}

func TestARecordingHoldsWhatTheShellPrinted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := setup(t, func(c *terminal.Config) { c.Recordings = dir })
	p := b.open("ann.owner.home", sized(90, 20))
	b.shell(0).print("caf\xc3")
	p.sees("caf")
	b.pass(time.Second)
	b.shell(0).print("\xa9 done\r\n")
	p.sees("done")
	b.shell(0).exit(0)
	p.closes(1000)
	b.until(func(w *world) bool { return w.liveLocked() == 0 })
	b.stop()
	head, output, _ := readCast(t, dir)
	if head["version"] != 2.0 || head["width"] != 90.0 || output != "café done\r\n" {
		t.Errorf("head %v, output %q", head, output)
	}
}

func TestASecondGatewayGoesOnWithTheRecording(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A replay that comes late is taken for output of its own, behind a gap: a busy machine gets its time.
	record := func(c *terminal.Config) { c.Recordings, c.SettleQuiet = dir, time.Second }
	a := setup(t, record)
	p := a.open("ann.owner.home")
	text := strings.Repeat("first gateway\r\n", 10) + "unique end\r\n"
	a.shell(0).print(text)
	p.sees("unique end")
	a.stop()
	a.shell(0).print("in between\r\n")
	b := setupIn(t, a.world, record)
	q := b.open("ann.owner.home")
	b.shell(0).print("second gateway\r\n")
	q.sees("second gateway")
	b.shell(0).exit(0)
	q.closes(1000)
	b.stop()
	if _, output, markers := readCast(t, dir); output != text+"in between\r\nsecond gateway\r\n" || len(markers) != 0 {
		t.Errorf("output %q, markers %v", output, markers)
	}
}

func TestARecordingIsBoundedAndSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := setup(t, func(c *terminal.Config) { c.Recordings, c.RecordingBytes = dir, 2<<10 })
	p := b.open("ann.owner.home")
	for range 20 {
		b.shell(0).print(strings.Repeat("x", 500) + "\r\n")
	}
	b.shell(0).print("END")
	p.sees("END")
	b.stop()
	_, output, markers := readCast(t, dir)
	if len(output) > 2<<10 || len(markers) != 1 {
		t.Errorf("%d bytes, markers %v", len(output), markers)
	}
}
