// Command testlog reads `go test -json` and prints what plain `go test` would: a line per package, and everything
// that a failing test said. It fails when a test failed, and when one was skipped that the allow list does not name:
// a test that never runs in CI proves nothing.
//
//	go test -race -json ./... | go run ./.ci/testlog .ci/skips
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of test2json's output (cmd/test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

type testlog struct {
	out     io.Writer
	allowed []string
	output  map[string][]string // of each test that runs, by package and name
	failed  bool
	skipped []string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testlog ALLOWLIST")
		os.Exit(2)
	}
	list, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(2)
	}
	log := &testlog{out: os.Stdout, output: map[string][]string{}}
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			log.allowed = append(log.allowed, line)
		}
	}
	if err := log.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
	slices.Sort(log.skipped)
	for _, name := range log.skipped {
		fmt.Fprintln(os.Stderr, "FAIL: skipped, and not in the allow list:", name)
	}
	if log.failed || len(log.skipped) > 0 {
		os.Exit(1)
	}
}

func (l *testlog) read(in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			fmt.Fprintln(l.out, scanner.Text()) // the build's own words
			continue
		}
		l.take(e)
	}
	return scanner.Err()
}

func (l *testlog) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(l.out, e.Output)
	case "build-fail":
		l.failed = true
	case "output":
		if e.Test != "" {
			l.output[key] = append(l.output[key], e.Output)
		} else if e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "testing: ") {
			fmt.Fprint(l.out, e.Output)
		}
	case "fail":
		l.failed = true
		if e.Test == "" {
			l.unfinished(e.Package)
		}
		l.tell(key)
	case "skip":
		if e.Test != "" && !fuzzSeed(e.Test) && !l.allows(key) {
			l.skipped = append(l.skipped, key+": "+strings.TrimSpace(strings.Join(l.output[key], "")))
		}
		delete(l.output, key)
	case "pass":
		delete(l.output, key)
	}
}

// tell prints what a test said.
func (l *testlog) tell(key string) {
	for _, line := range l.output[key] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(l.out, line)
		}
	}
	delete(l.output, key)
}

// unfinished prints what the tests of a package said that never ended: when one panics or the package's time is over,
// the stacks are in the output of a test that ran, which gets no end of its own.
func (l *testlog) unfinished(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(l.output)) {
		if strings.HasPrefix(key, pkg+" ") {
			fmt.Fprintln(l.out, "--- NOT ENDED:", key)
			l.tell(key)
		}
	}
}

// fuzzSeed: a fuzz test passes over inputs that say nothing, and its seeds are tests to the tool.
func fuzzSeed(test string) bool {
	return strings.HasPrefix(test, "Fuzz") && strings.Contains(test, "/")
}

// allows reports whether a line of the list is the end of the package's path and the test's name, or a parent test.
func (l *testlog) allows(key string) bool {
	return slices.ContainsFunc(l.allowed, func(line string) bool {
		return strings.HasSuffix(key, line) || strings.Contains(key+"/", line+"/")
	})
}
