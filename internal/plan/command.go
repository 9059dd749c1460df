package plan

import (
	"fmt"
	"strings"
)

// MaxCommandBytes is the largest command: the bytes of shell, or of argv joined by NUL.
const MaxCommandBytes = 16 << 10

// CheckCommand judges a command before anything is spent on it: exactly one of argv and shell, not empty, at most
// MaxCommandBytes, no NUL inside, no cloud metadata address. The last is advice, since the guest can spell an
// address in ways that no text filter knows; the egress policy is the wall. It returns nil when all is well.
func CheckCommand(argv []string, shell string) *Violation {
	if len(argv) > 0 && shell != "" {
		return &Violation{Reason: ReasonInvalidRequest, Detail: "argv and shell are both given"}
	}
	if len(argv) == 0 && strings.TrimSpace(shell) == "" {
		return &Violation{Reason: ReasonEmptyCommand, Detail: "there is no command"}
	}
	if len(argv) > 0 && strings.TrimSpace(argv[0]) == "" {
		return &Violation{Reason: ReasonEmptyCommand, Detail: "argv[0] is empty"}
	}
	if size := commandSize(argv, shell); size > MaxCommandBytes {
		return &Violation{Reason: ReasonCommandTooLarge,
			Detail: fmt.Sprintf("the command has %d bytes, %d are allowed", size, MaxCommandBytes)}
	}
	parts := argv
	if shell != "" {
		parts = []string{shell}
	}
	for _, part := range parts {
		if strings.IndexByte(part, 0) >= 0 {
			return &Violation{Reason: ReasonInvalidRequest, Detail: "the command contains a NUL byte", Anomaly: true}
		}
		if name, found := FindMetadataAddress(part); found {
			return &Violation{Reason: ReasonBlockedMetadataAccess, Detail: "the command names " + name, Anomaly: true}
		}
	}
	return nil
}

func commandSize(argv []string, shell string) int {
	if len(argv) == 0 {
		return len(shell)
	}
	size := len(argv) - 1
	for _, a := range argv {
		size += len(a)
	}
	return size
}
