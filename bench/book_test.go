package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filled is a book in which every row of every table stands.
func filled() *book {
	b := newBook(options{scale: 1})
	for _, t := range tables {
		for _, row := range t.rows {
			cells := make([]string, len(t.head)-1)
			for i := range cells {
				cells[i] = "1"
			}
			b.row(t.id, row, cells...)
		}
	}
	return b
}

func TestABookWithEveryRowIsComplete(t *testing.T) {
	t.Parallel()
	if err := filled().complete(); err != nil {
		t.Fatal(err)
	}
}

func TestEachMissingRowFailsByName(t *testing.T) {
	t.Parallel()
	for _, table := range tables {
		for _, row := range table.rows {
			b := filled()
			delete(b.Cells[table.id], row)
			if err := b.complete(); err == nil || !strings.Contains(err.Error(), row) {
				t.Errorf("without %q of %q: %v", row, table.title, err)
			}
		}
	}
}

func TestARowThatNoTableShowsFails(t *testing.T) {
	t.Parallel()
	b := filled()
	b.row("queue", "another queue", "1")
	if err := b.complete(); err == nil || !strings.Contains(err.Error(), "another queue") {
		t.Fatalf("got %v", err)
	}
}

func TestASectionThatFailedFailsTheRunAndStandsInTheDocument(t *testing.T) {
	t.Parallel()
	b := filled()
	b.failures = append(b.failures, "floor: no broker")
	if err := b.complete(); err == nil || !strings.Contains(err.Error(), "no broker") {
		t.Fatalf("got %v", err)
	}
	var doc bytes.Buffer
	b.document(&doc)
	if !strings.Contains(doc.String(), "no broker") {
		t.Fatal("the document hides the failure")
	}
}

func TestTheDocumentShowsEveryTableAndJudgesEveryAim(t *testing.T) {
	t.Parallel()
	b := filled()
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := b.write(path); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if !strings.Contains(string(doc), "### "+table.title+"\n") {
			t.Errorf("no %q", table.title)
		}
	}
	for _, a := range b.aims() {
		want := "| met |"
		if !a.met {
			want = "| **missed** | " + a.reason
			if a.reason == "" {
				t.Errorf("%q is missed without a reason", a.text)
			}
		}
		if !strings.Contains(string(doc), "| "+a.text+" | "+a.value+" "+want) {
			t.Errorf("the document does not judge %q", a.text)
		}
	}
	if strings.Contains(string(doc), "NaN") || strings.Contains(string(doc), "%!") {
		t.Errorf("a figure could not be written:\n%s", doc)
	}
}

func TestAnAimThatWasNotMeasuredIsNeverMet(t *testing.T) {
	t.Parallel()
	for _, a := range filled().aims() {
		if a.met || a.value != missing {
			t.Errorf("of nothing: %+v", a)
		}
	}
}

func TestAMissedAimIsJudgedByWhatWasMeasured(t *testing.T) {
	t.Parallel()
	b := filled()
	b.Job.JobsPerSecond = 999
	if a := b.aims()[2]; a.met || a.value != "999 jobs/s" {
		t.Fatalf("got %+v", a)
	}
	b.Job.JobsPerSecond = 1000
	if a := b.aims()[2]; !a.met {
		t.Fatalf("got %+v", a)
	}
}

func TestPartsAreKeptAndPutTogetherWhole(t *testing.T) {
	t.Parallel()
	o := options{scale: 1, deep: 7, results: filepath.Join(t.TempDir(), "kept"), only: "", out: filepath.Join(t.TempDir(), "performance.md")}
	if _, ok, err := o.kept("job"); ok || err != nil {
		t.Fatalf("of nothing: %v, %v", ok, err)
	}
	for i, s := range sections {
		b := newBook(o)
		b.section = s.name
		b.say("%s was measured", s.name)
		if i == 0 {
			b.Job.Jobs, b.Job.JobsPerSecond = 5, 1234
			b.row("latency", rowStarted, "1", "2", "3", "4")
		} else {
			b.row("floor"+s.name, "row", "1")
		}
		if err := o.keep(part{Section: s.name, Scale: 1, Deep: 7, Others: 20, Findings: b.findings}); err != nil {
			t.Fatal(err)
		}
	}
	whole := newBook(o)
	if err := whole.finish(); err == nil || !strings.Contains(err.Error(), "row missing") {
		t.Fatalf("rows that no section measured: %v", err)
	}
	if len(whole.parts) != len(sections) || whole.Job.JobsPerSecond != 1234 || len(whole.Said) != len(sections) {
		t.Fatalf("%d parts, %v", len(whole.parts), whole.Job)
	}
	doc, err := os.ReadFile(o.out)
	if err != nil || !strings.Contains(string(doc), "**Not a quiet machine:**") || !strings.Contains(string(doc), "floor was measured") {
		t.Fatalf("%v\n%s", err, doc)
	}
	resumed := o
	resumed.resume = true
	if want, err := resumed.wanted("job"); want || err != nil {
		t.Fatalf("what is kept is measured again: %v", err)
	}
	resumed.scale = 0.5
	if want, err := resumed.wanted("job"); !want || err != nil {
		t.Fatalf("results of another size are taken: %v", err)
	}
}

func TestAColumnThatWasNotMeasuredIsAMissingFigureAndNotAFailureOfItsSection(t *testing.T) {
	t.Parallel()
	b := filled()
	delete(b.Cells, "throughput")
	b.Sync.Jobs = 5
	b.derive()
	if cells := b.Cells["throughput"]["jobs a second"]; len(cells) != 3 || cells[0] != missing || cells[2] == missing {
		t.Fatalf("got %v", cells)
	}
	if err := b.complete(); err == nil || !strings.Contains(err.Error(), "figure missing") {
		t.Fatalf("got %v", err)
	}
}

func TestUnknownSectionsAndSizesAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []options{{scale: 2}, {scale: 0}, {scale: 1, only: "job,nothing"}} {
		if err := o.settle(); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
