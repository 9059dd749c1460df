package main

import (
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/config"
)

// The exit codes of all commands but exec, which has its own.
const (
	codeDone        = 0
	codeRefused     = 1 // not found, or refused
	codeUsage       = 2
	codeUnreachable = 3 // NATS or Redis cannot be reached
)

// exitError is an error with the code that the process ends with.
type exitError struct {
	code int
	err  error
	// quiet: everything was said already, print nothing.
	quiet bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func refused(format string, args ...any) error {
	return &exitError{code: codeRefused, err: fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// endWith ends the process with a code and no further word.
func endWith(code int) error {
	if code == codeDone {
		return nil
	}
	return &exitError{code: code, err: fmt.Errorf("exit code %d", code), quiet: true}
}

// exitCode decides by class what an error ends the process with, and what is said about it.
func exitCode(err error) (code int, quiet bool) {
	var exit *exitError
	var gone *config.DevGoneError
	var file *config.DevFileError
	switch {
	case err == nil:
		return codeDone, true
	case errors.As(err, &exit):
		return exit.code, exit.quiet
	case errors.As(err, &gone), errors.As(err, &file), unreachable(err):
		return codeUnreachable, false
	}
	return codeRefused, false
}
