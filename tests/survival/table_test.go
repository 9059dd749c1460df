package survival_test

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/tests/rig"
)

// table counts outcomes by the state in which the worker was killed.
type table struct {
	mu     sync.Mutex // protects counts
	counts map[[3]string]int
}

func newTable() *table { return &table{counts: map[[3]string]int{}} }

func (t *table) add(state string, r *bus.ResultBody) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[[3]string{state, rig.Says(r), r.ExitSource}]++
}

// String is the table in Markdown.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([][3]string, 0, len(t.counts))
	for k := range t.counts {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return strings.Join(keys[i][:], " ") < strings.Join(keys[j][:], " ") })
	var b strings.Builder
	b.WriteString("| killed at | outcome | code from | count |\n|---|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| %s | %s | %s | %d |\n", k[0], k[1], k[2], t.counts[k])
	}
	return b.String()
}

// keep writes the table where WAKEBUS_SURVIVAL_TABLE says; docs/survival.md holds those of a long run.
func (t *table) keep(tb testing.TB, mode string) {
	dir := os.Getenv("WAKEBUS_SURVIVAL_TABLE")
	if dir == "" {
		return
	}
	path := dir + "/" + strings.ReplaceAll(mode, " ", "-") + ".md"
	if err := os.WriteFile(path, []byte(t.String()), 0o600); err != nil {
		tb.Error(err)
	}
}
