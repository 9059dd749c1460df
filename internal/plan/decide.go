package plan

// Plan is what must happen to a session's Sprite.
type Plan struct {
	Action Action `json:"plan"`
	Why    Why    `json:"why"`
	// Reason is set when the action is deny, and only then.
	Reason Reason `json:"reason,omitempty"`
	// Then follows the action once that is confirmed; empty for nothing.
	Then Action `json:"then,omitempty"`
	// LookUp: no link names the Sprite. Look it up by name first; only what is found is torn down.
	LookUp bool `json:"look_up,omitempty"`
	// Fresh: the user meets a new file system although the session had one before.
	Fresh bool `json:"fresh,omitempty"`
}

// Spends reports whether the plan creates, wakes or deletes anything at the provider.
func (p Plan) Spends() bool {
	switch p.Action {
	case ActionCreate, ActionResume, ActionTeardown:
		return true
	case ActionNoop:
		// A terminal's noop reconnects and wakes; an end's noop does nothing.
		return p.Why == WhyIdle
	case ActionDeny:
		return false
	}
	return false
}

// Row is one line of the lifecycle table.
type Row struct {
	// Name is stable and short.
	Name string `json:"row"`
	// Says is the line as a sentence.
	Says string `json:"says"`
}

type rule struct {
	Row
	match func(Facts) bool
	plan  func(Facts) Plan
}

func always(p Plan) func(Facts) Plan { return func(Facts) Plan { return p } }

func deny(r Reason) Plan { return Plan{Action: ActionDeny, Why: Why(r), Reason: r} }

func (f Facts) run() bool { return f.Intent == IntentRun }
func (f Facts) end() bool { return f.Intent == IntentEnd }

// over reports whether the session has been ended, be the tear-down finished or not.
func (f Facts) over() bool {
	return f.Link == LinkEnded || (f.Link == LinkTearingDown && f.EndedSeq > 0 && f.EndedSeq >= f.RevivedSeq)
}

func (f Facts) expired() bool { return f.HardExpiry > 0 && f.Idle >= f.HardExpiry }

func newOrAdopted(f Facts) Plan {
	if f.Presence == PresencePresent {
		return Plan{Action: ActionCreate, Why: WhyAdopted}
	}
	return Plan{Action: ActionCreate, Why: WhyNew}
}

// table is read from top to bottom; the first row that matches decides. Denials stand before everything that could
// spend, and no row tears anything down for a run except the hard expiry and the rest of an unfinished tear-down.
var table = []rule{
	{Row{"invalid", "facts outside their closed sets: deny (error)"},
		func(f Facts) bool { return f.Validate() != nil }, always(deny(ReasonError))},

	{Row{"end-not-authentic", "end without an authentic grant: deny"},
		func(f Facts) bool { return f.end() && !f.Authentic },
		func(f Facts) Plan { return denial(f, ReasonInvalidRequest) }},
	{Row{"end-again", "end of an ended session: noop, no call"},
		func(f Facts) bool { return f.end() && f.Link == LinkEnded }, always(Plan{Action: ActionNoop, Why: WhySessionEnd})},
	{Row{"end-late", "end that is older than the fresh start which made this Sprite: noop"},
		func(f Facts) bool { return f.end() && f.Link != LinkNone && f.Queued < f.RevivedSeq },
		always(Plan{Action: ActionNoop, Why: WhyFreshStart})},
	{Row{"end-link", "end, a link: teardown (session_end), whatever authorisation says"},
		func(f Facts) bool { return f.end() && f.Link != LinkNone }, always(Plan{Action: ActionTeardown, Why: WhySessionEnd})},
	{Row{"end-nothing", "end, no link, no Sprite by that name: noop"},
		func(f Facts) bool { return f.end() && f.Presence == PresenceGone }, always(Plan{Action: ActionNoop, Why: WhySessionEnd})},
	{Row{"end-stray", "end, no link: look it up by name, tear down what is found"},
		Facts.end, func(f Facts) Plan {
			return Plan{Action: ActionTeardown, Why: WhySessionEnd, LookUp: f.Presence != PresencePresent}
		}},

	{Row{"run-denied", "run, not authorised: deny, even when a warm sandbox exists"},
		func(f Facts) bool { return !f.Authorised },
		func(f Facts) Plan { return denial(f, ReasonInsufficientRole) }},
	{Row{"run-older-than-end", "run that was queued before the session's end: deny (session_ended), fresh start or not"},
		func(f Facts) bool { return f.Queued < f.EndedSeq }, always(deny(ReasonSessionEnded))},
	{Row{"run-ended", "run in an ended session without a fresh start: deny (session_ended)"},
		func(f Facts) bool { return f.over() && !f.FreshStart }, always(deny(ReasonSessionEnded))},
	{Row{"run-fresh-start", "run with a fresh start in an ended session: create"},
		func(f Facts) bool { return f.Link == LinkEnded },
		always(Plan{Action: ActionCreate, Why: WhyFreshStart, Fresh: true})},
	{Row{"run-finish-end", "run with a fresh start, the end's tear-down unfinished: teardown, then create"},
		func(f Facts) bool { return f.over() },
		always(Plan{Action: ActionTeardown, Why: WhyFreshStart, Then: ActionCreate, Fresh: true})},
	{Row{"run-finish-expiry", "run, an expiry's tear-down unfinished: teardown, then create"},
		func(f Facts) bool { return f.Link == LinkTearingDown },
		always(Plan{Action: ActionTeardown, Why: WhyHardExpiry, Then: ActionCreate, Fresh: true})},
	{Row{"run-new", "run, no link or our own unfinished create: create, or adopt what has the name"},
		func(f Facts) bool { return f.Link == LinkNone || f.Link == LinkCreating }, newOrAdopted},

	{Row{"run-gone-twice", "run, the Sprite gone again after this run made it anew: deny (provision_failed)"},
		func(f Facts) bool { return f.Presence == PresenceGone && f.Recreated }, always(deny(ReasonProvisionFailed))},
	{Row{"run-gone", "run, the control plane says 404 or 410: drop the link, create once under the same key"},
		func(f Facts) bool { return f.Presence == PresenceGone },
		always(Plan{Action: ActionCreate, Why: WhyGone, Fresh: true})},
	{Row{"conversation-expired", "run, a conversation idle for the hard expiry or longer: teardown, then create"},
		func(f Facts) bool { return f.Kind == KindConversation && f.expired() },
		always(Plan{Action: ActionTeardown, Why: WhyHardExpiry, Then: ActionCreate, Fresh: true})},
	{Row{"conversation-idle", "run, a conversation idle for less than the hard expiry: resume"},
		func(f Facts) bool { return f.Kind == KindConversation && f.Idle >= ReconnectAfter },
		always(Plan{Action: ActionResume, Why: WhyIdle})},
	{Row{"conversation-warm", "run, a conversation used just now: resume"},
		func(f Facts) bool { return f.Kind == KindConversation }, always(Plan{Action: ActionResume, Why: WhyWarm})},
	{Row{"terminal-idle", "run, a terminal idle for 15 minutes or more: noop, that is reconnect and wake"},
		func(f Facts) bool { return f.Idle >= ReconnectAfter }, always(Plan{Action: ActionNoop, Why: WhyIdle})},
	{Row{"terminal-warm", "run, a terminal used just now: resume"},
		Facts.run, always(Plan{Action: ActionResume, Why: WhyWarm})},
}

func denial(f Facts, otherwise Reason) Plan {
	if f.Denial == "" {
		return deny(otherwise)
	}
	return deny(f.Denial)
}

// Decide says what must happen, by the first row of the lifecycle table that matches. It is total: facts outside
// their closed sets are denied, never guessed at.
func Decide(f Facts) Plan {
	p, _ := Explain(f)
	return p
}

// Explain is Decide, and the row that decided.
func Explain(f Facts) (Plan, Row) {
	for _, r := range table {
		if r.match(f) {
			return r.plan(f), r.Row
		}
	}
	return deny(ReasonError), table[0].Row
}

// Rows lists the lifecycle table in its order. The caller may keep the slice.
func Rows() []Row {
	rows := make([]Row, len(table))
	for i, r := range table {
		rows[i] = r.Row
	}
	return rows
}
