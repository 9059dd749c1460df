// Package survival holds the tests of what a job survives: the death, the freezing and the draining of its worker, the
// absence of the broker and of Redis, faults at every step.
package survival
