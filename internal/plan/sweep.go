package plan

import "time"

// The bounds of a sweep.
const (
	// SweepGrace is added to the hard expiry before an idle Sprite may be swept.
	SweepGrace = 24 * time.Hour
	// SweepApart is the least time between the two sightings that a deletion needs.
	SweepApart = time.Hour
	// SweepMost is the most that one sweep deletes.
	SweepMost = 20
)

// SweepFacts is what is known about one Sprite in a listing.
type SweepFacts struct {
	// Ours: its label carries this deployment's id.
	Ours bool
	// ActivityKnown: the control plane said when it was last active; Idle is how long ago that is.
	ActivityKnown bool
	Idle          time.Duration
	// HardExpiry is the deployment's; 0 or less = never, and then nothing is swept.
	HardExpiry time.Duration
	// InUse: a lease, a running job or a live PTY names it, or whether one does is not known.
	InUse bool
	// FirstSeen is how long ago a sweep first found it like this; 0 = not before.
	FirstSeen time.Duration
}

// SweepVerdict is what a sweep does with one Sprite.
type SweepVerdict string

// The closed set of sweep verdicts.
const (
	SweepKeep SweepVerdict = "keep"
	// SweepMark: remember that it was seen; a later sweep may delete it.
	SweepMark   SweepVerdict = "mark"
	SweepDelete SweepVerdict = "delete"
)

// Sweep judges one Sprite and says why. A missing link is no fact here: alone it never deletes.
func Sweep(f SweepFacts) (SweepVerdict, string) {
	switch {
	case !f.Ours:
		return SweepKeep, "it belongs to another deployment"
	case f.HardExpiry <= 0:
		return SweepKeep, "nothing expires here"
	case f.InUse:
		return SweepKeep, "it is in use"
	case !f.ActivityKnown:
		return SweepKeep, "its last activity is not known"
	case f.Idle < f.HardExpiry+SweepGrace:
		return SweepKeep, "it was active not long ago"
	case f.FirstSeen < SweepApart:
		return SweepMark, "it must be seen idle once more"
	}
	return SweepDelete, "it has been idle for longer than the hard expiry and a day"
}

// SweepBudget is how many of a complete listing's total Sprites one sweep may delete: 5 %, at least one, at most
// SweepMost. A sweep that wants more deletes nothing and alarms. A partial listing has no budget.
func SweepBudget(total int, complete bool) int {
	if !complete || total <= 0 {
		return 0
	}
	return min(max(total/20, 1), SweepMost)
}
