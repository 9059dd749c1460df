package plan

// GuardFile is what the guard's file in the sandbox says after a dial ended with exit code 97, read back.
type GuardFile string

// The closed set of guard files.
const (
	GuardFileAbsent GuardFile = "absent"
	GuardFileEmpty  GuardFile = "empty"
	// GuardFileOurs carries the nonce of the dial that was answered 97.
	GuardFileOurs GuardFile = "ours"
	// GuardFileOther carries another dial's nonce.
	GuardFileOther GuardFile = "other"
)

// GuardVerdict is what a 97 meant.
type GuardVerdict string

// The closed set of guard verdicts.
const (
	// GuardOwnCode: the command itself ended with 97.
	GuardOwnCode GuardVerdict = "own_code"
	// GuardTaken: an earlier dial started the command; find it, do not start it again.
	GuardTaken GuardVerdict = "taken"
	// GuardTakenUnknown: an earlier dial got as far as the file; nobody can say by which process.
	GuardTakenUnknown GuardVerdict = "taken_unknown"
	// GuardDialAgain: nothing ran; make the folder and dial again, once.
	GuardDialAgain GuardVerdict = "dial_again"
	// GuardRefused: nothing ran and a second dial did not help: failed, execution_failed.
	GuardRefused GuardVerdict = "refused"
)

// JudgeGuard reads a 97 by the guard's file; folderMade says that the dial was already repeated with the folder made.
func JudgeGuard(file GuardFile, folderMade bool) GuardVerdict {
	switch file {
	case GuardFileOurs:
		return GuardOwnCode
	case GuardFileOther:
		return GuardTaken
	case GuardFileEmpty:
		return GuardTakenUnknown
	case GuardFileAbsent:
		if folderMade {
			return GuardRefused
		}
		return GuardDialAgain
	}
	return GuardTakenUnknown
}

// SettleFacts is what is known about a command that may have run and whose connection is gone.
type SettleFacts struct {
	Phase Phase
	// SpriteGone: the control plane says 404 or 410.
	SpriteGone bool
	// SessionRuns: a session with the journal's created (or, in dialing, with the guard's pid) runs now.
	SessionRuns bool
	// ExitLine: the guard's file ends with a complete exit line; LimitLine: it has a limit line.
	ExitLine, LimitLine bool
	// Stop is the announced stop, if any.
	Stop StopReason
}

// Settlement is how to bring such a command to its one result.
type Settlement string

// The closed set of settlements.
const (
	// SettleStop: carry the announced stop through; the outcome is its reason.
	SettleStop Settlement = "stop"
	// SettleExited: the exit line is the code; exited, source file.
	SettleExited Settlement = "exited"
	// SettleTimedOut: the guard's own limit ended it.
	SettleTimedOut Settlement = "timed_out"
	// SettleAttach: it runs; attach and go on.
	SettleAttach Settlement = "attach"
	// SettleStopThenLost: it may run out of sight; stop its group, then lost.
	SettleStopThenLost Settlement = "stop_then_lost"
	// SettleLost: nothing can say how it ended.
	SettleLost Settlement = "lost"
)

// Settle decides by what the journal announced first, then by what the sandbox says.
func Settle(f SettleFacts) Settlement {
	switch {
	case f.Stop != "":
		return SettleStop
	case f.SpriteGone:
		return SettleLost
	case f.LimitLine:
		// The guard says limit before it kills, so an exit line after it is the kill's.
		return SettleTimedOut
	case f.ExitLine:
		return SettleExited
	case f.SessionRuns:
		return SettleAttach
	case f.Phase.Before(PhaseStarted):
		return SettleStopThenLost
	}
	return SettleLost
}
