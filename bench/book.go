package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bench"
)

// book holds what was measured until it is written.
type book struct {
	opt      options
	dir      string // temporary files
	worker   string // the worker binary
	began    time.Time
	took     time.Duration
	cells    map[string]map[string][]string // by table and row
	failures []string

	// What later sections and the aims are computed from.
	job, real, sync bench.Report
	process         processFigures
	output          outputFigures
	memory          memoryFigures
	depth, noisy    growthFigure
	ratios          []string
	profile         []profileShare
	allocs          []profileShare
}

// growthFigure is a value beside what it grew from.
type growthFigure struct{ before, after float64 }

// memoryFigures is what a job allocates.
type memoryFigures struct{ bytes, objects float64 }

func newBook(o options) *book {
	return &book{opt: o, began: time.Now(), cells: map[string]map[string][]string{}}
}

// n is a number of jobs at this scale, at least min.
func (b *book) n(full, least int) int { return max(least, int(float64(full)*b.opt.scale)) }

// row fills a row. The table must know it.
func (b *book) row(table, row string, cells ...string) {
	if b.cells[table] == nil {
		b.cells[table] = map[string][]string{}
	}
	b.cells[table][row] = cells
}

// table is one table of the document. Every row that it names must be filled, else the command fails.
type table struct {
	id, title, text string
	head            []string
	rows            []string
}

// distribution formats one in milliseconds.
func distribution(d bench.Distribution) []string {
	return []string{f2(d.P50), f2(d.P90), f2(d.P99), f2(d.Max)}
}

func f0(v float64) string { return fmt.Sprintf("%.0f", v) }
func f1(v float64) string { return fmt.Sprintf("%.1f", v) }
func f2(v float64) string { return fmt.Sprintf("%.2f", v) }

// ratio is a beside b as a factor.
func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func (b *book) printTable(w io.Writer, t table) {
	fmt.Fprintf(w, "\n### %s\n\n%s\n\n", t.title, strings.TrimSpace(t.text))
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		cells := b.cells[t.id][row]
		if cells == nil {
			cells = append([]string{"not measured"}, slices.Repeat([]string{""}, max(0, len(t.head)-2))...)
		}
		fmt.Fprintf(w, "| %s | %s |\n", row, strings.Join(cells, " | "))
	}
}

// tables prints what was measured without the document around it.
func (b *book) tables(w io.Writer) error {
	for _, t := range tables {
		if len(b.cells[t.id]) > 0 {
			b.printTable(w, t)
		}
	}
	return b.failed()
}

func (b *book) failed() error {
	var errs []error
	for _, f := range b.failures {
		errs = append(errs, errors.New(f))
	}
	return errors.Join(errs...)
}

// complete is nil when no row is missing, and none was measured that no table shows.
func (b *book) complete() error {
	errs := []error{b.failed()}
	for _, t := range tables {
		for _, row := range t.rows {
			if b.cells[t.id][row] == nil {
				errs = append(errs, fmt.Errorf("row missing in %q: %s", t.title, row))
			}
		}
		for row := range b.cells[t.id] {
			if !slices.Contains(t.rows, row) {
				errs = append(errs, fmt.Errorf("row %q was measured, and %q does not show it", row, t.title))
			}
		}
	}
	return errors.Join(errs...)
}
