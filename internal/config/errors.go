package config

import (
	"errors"
	"fmt"
)

// Problem is a setting that keeps a process from starting. It names the variable and never its value.
type Problem struct {
	// Variable is the environment variable's name.
	Variable string
	// Why says what is wrong and what would be right.
	Why string
}

func (p *Problem) Error() string { return p.Variable + ": " + p.Why }

// Warning is a setting that is worth a word but stops nothing. It never holds a value.
type Warning struct {
	// Variable is the environment variable's name.
	Variable string
	// Why says what was found and what is done about it.
	Why string
}

func (w Warning) String() string { return w.Variable + ": " + w.Why }

// Problems lists every *Problem in an error that Load returned, in the table's order.
func Problems(err error) []*Problem {
	var one *Problem
	var many interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		var all []*Problem
		for _, e := range many.Unwrap() {
			all = append(all, Problems(e)...)
		}
		return all
	case errors.As(err, &one):
		return []*Problem{one}
	}
	return nil
}

func joinProblems(problems []*Problem) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// ErrNoDevFile: neither the folder nor one of its parents holds a dev instance's file.
var ErrNoDevFile = errors.New("no .wakebus/env here or in a parent folder")

// DevFileError is a dev instance's file that is there and must not be used: its owner or mode is wrong, or it
// cannot be read.
type DevFileError struct {
	// Path is the file.
	Path string
	// Why says what is wrong with it.
	Why string
}

func (e *DevFileError) Error() string { return fmt.Sprintf("dev instance file %s: %s", e.Path, e.Why) }

// DevGoneError says that a dev instance's file was found and its server does not answer.
type DevGoneError struct {
	// Dir is the dev instance's folder.
	Dir string
	// Cause is the failed connection.
	Cause error
}

func (e *DevGoneError) Error() string {
	return fmt.Sprintf("the dev instance of %s is not running", e.Dir)
}

func (e *DevGoneError) Unwrap() error { return e.Cause }
