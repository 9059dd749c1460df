package bench

import (
	"errors"
	"fmt"
	"time"
)

// ErrConfig marks a configuration that cannot be measured.
var ErrConfig = errors.New("bench configuration")

// NotExitedError is a job that did not end by itself with code 0: what was measured would not be what was asked for.
type NotExitedError struct {
	Job      string
	Outcome  string
	Reason   string
	Message  string
	ExitCode int
}

func (e *NotExitedError) Error() string {
	if e.Outcome == "exited" {
		return fmt.Sprintf("job %s exited with %d", e.Job, e.ExitCode)
	}
	return fmt.Sprintf("job %s ended %s %s: %s", e.Job, e.Outcome, e.Reason, e.Message)
}

// SilentError is a job whose result did not come.
type SilentError struct {
	Job  string
	Wait time.Duration
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("job %s has no result after %s", e.Job, e.Wait)
}
