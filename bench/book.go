package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/wakebus/wakebus/internal/bench"
)

// book holds what was measured until it is written.
type book struct {
	findings
	opt      options
	worker   string // the worker binary
	section  string // the one that is measured now
	parts    []part // the sections in it, in their order
	failures []string
}

// findings are what sections found. They are kept as JSON, a file for each section, and put together for the document.
type findings struct {
	Cells map[string]map[string][]string `json:"cells,omitempty"` // by table and row
	Said  map[string][]string            `json:"said,omitempty"`  // sentences for the summary, by section

	// What the aims and the capacity are computed from.
	Job     bench.Report   `json:"job,omitzero"`
	Real    bench.Report   `json:"real,omitzero"`
	Sync    bench.Report   `json:"sync,omitzero"`
	Process processFigures `json:"process,omitzero"`
	Output  outputFigures  `json:"output,omitzero"`
	Memory  memoryFigures  `json:"memory,omitzero"`
	Depth   growthFigure   `json:"depth,omitzero"`
	Slots   growthFigure   `json:"slots,omitzero"` // quiet tenants beside one that takes slots
	Busy    growthFigure   `json:"busy,omitzero"`  // and beside one that takes the processor
	Profile []profileShare `json:"profile,omitempty"`
	Allocs  []profileShare `json:"allocs,omitempty"`
}

// growthFigure is a value beside what it grew from.
type growthFigure struct{ Before, After float64 }

// memoryFigures is what a job allocates.
type memoryFigures struct{ Bytes, Objects float64 }

func newBook(o options) *book {
	return &book{opt: o, findings: findings{Cells: map[string]map[string][]string{}, Said: map[string][]string{}}}
}

// n is a number of jobs at this scale, at least min.
func (b *book) n(full, least int) int { return max(least, int(float64(full)*b.opt.scale)) }

// row fills a row. The table must know it.
func (b *book) row(table, row string, cells ...string) {
	if b.Cells[table] == nil {
		b.Cells[table] = map[string][]string{}
	}
	b.Cells[table][row] = cells
}

// say adds a sentence to the summary of the comparisons.
func (b *book) say(format string, args ...any) {
	b.Said[b.section] = append(b.Said[b.section], fmt.Sprintf(format, args...))
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

// missing stands where a figure should be.
const missing = "-"

// ratio is a beside b as a factor.
func ratio(a, b float64) string {
	if b == 0 {
		return missing
	}
	return fmt.Sprintf("%.2f", a/b)
}

func (b *book) printTable(w io.Writer, t table) {
	fmt.Fprintf(w, "\n### %s\n\n%s\n\n", t.title, strings.TrimSpace(t.text))
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		cells := b.Cells[t.id][row]
		if cells == nil {
			cells = append([]string{"not measured"}, slices.Repeat([]string{""}, max(0, len(t.head)-2))...)
		}
		fmt.Fprintf(w, "| %s | %s |\n", row, strings.Join(cells, " | "))
	}
}

// tables prints what was measured without the document around it.
func (b *book) tables(w io.Writer) error {
	for _, t := range tables {
		if len(b.Cells[t.id]) > 0 {
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

// complete is nil when no row and no figure is missing, and none was measured that no table shows.
func (b *book) complete() error {
	errs := []error{b.failed()}
	for _, t := range tables {
		for _, row := range t.rows {
			if b.Cells[t.id][row] == nil {
				errs = append(errs, fmt.Errorf("row missing in %q: %s", t.title, row))
			}
			if slices.Contains(b.Cells[t.id][row], missing) {
				errs = append(errs, fmt.Errorf("figure missing in %q: %s", t.title, row))
			}
		}
		for row := range b.Cells[t.id] {
			if !slices.Contains(t.rows, row) {
				errs = append(errs, fmt.Errorf("row %q was measured, and %q does not show it", row, t.title))
			}
		}
	}
	return errors.Join(errs...)
}
