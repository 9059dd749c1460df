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
			delete(b.cells[table.id], row)
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
		if a.met || a.value != "-" {
			t.Errorf("of nothing: %+v", a)
		}
	}
}

func TestAMissedAimIsJudgedByWhatWasMeasured(t *testing.T) {
	t.Parallel()
	b := filled()
	b.job.JobsPerSecond = 999
	if a := b.aims()[2]; a.met || a.value != "999 jobs/s" {
		t.Fatalf("got %+v", a)
	}
	b.job.JobsPerSecond = 1000
	if a := b.aims()[2]; !a.met {
		t.Fatalf("got %+v", a)
	}
}
