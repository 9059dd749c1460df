package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON writes one object as one line.
func (c *cli) printJSON(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printRows writes a list: with --json an object per line, else a table with a heading. An empty list is nothing.
func printRows[T any](c *cli, rows []T, heading string, cells func(T) []string) error {
	if c.flags.json {
		for _, row := range rows {
			if err := c.printJSON(row); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(heading, " ", "\t"))
	for _, row := range rows {
		line := cells(row)
		for i := range line {
			line[i] = clean(line[i])
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// pair is one line of a single object's description.
type pair struct{ name, value string }

// printPairs writes the description of one object, without the lines that have no value.
func (c *cli) printPairs(pairs ...pair) {
	w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
	for _, p := range pairs {
		if p.value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", p.name, clean(p.value))
		}
	}
	_ = w.Flush() // a closed standard output is found by the next write
}

// clean makes text from outside fit for a terminal: an escape sequence in a tenant's command must not move an
// operator's cursor. What cannot be printed is shown as a Go escape.
func clean(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// age writes how long ago something was, in the two largest units.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
