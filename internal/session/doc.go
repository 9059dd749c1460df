// Package session keeps the link between a conversation or a terminal and its Sprite, which is also the lock of
// whoever plans for it.
//
// Every change is made by revision: of two planners that read the same link one wins, the other gets ErrConflict,
// reads again and plans again. creating and tearing_down are held by one run; another finds Busy and waits, or, when
// that run's journal has ended, takes the hold over.
//
//	        BeginCreate              Commit
//	none ───────────────▶ creating ─────────▶ live ──▶ (Touch, Amend, SetPTY, ClearPTY)
//	 │                    ▲  ▲   │             │  │
//	 │             Revive │  │   │ BeginTeardown  │ BeginTeardown
//	 │                    │  │   ▼             ▼  │
//	 │ Tombstone        ended └─ tearing_down ◀───┘     live ──Recreate──▶ creating (its Sprite is gone)
//	 └───────────────────▶ ▲  CreateAgain │
//	                       └──────────────┘
//	                         FinishEnd
//
// A link is written before its Sprite is created and stays until a tear-down is confirmed: it is the record by which
// nothing is lost. A tombstone remembers the sequence of the end, so that an older request cannot revive the session.
package session
