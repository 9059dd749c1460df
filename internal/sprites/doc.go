// Package sprites speaks the Sprites protocol, so that nothing else has to: it provisions sandboxes, wakes them, runs
// guarded commands and terminals in them, moves files and classifies everything that goes wrong.
//
// # A command's life
//
// A command is started at most once, whatever the network does. Its dial may fail before the socket opened, which says
// nothing about whether the server started it; so each command runs under a guard, a small sh script which creates a file
// exclusively before it starts anything, and a redial finds that file taken.
//
//	           dial failed before open (bounded, growing waits)
//	          ┌──────────┐
//	          ▼          │
//	Start ─▶ dialing ────┴─▶ open ─▶ session_info ─▶ stdin, EOF ─▶ running ─▶ exit frame ─▶ drained ─▶ io.EOF
//	          │               │                                      │
//	          │ taken         └──── socket ended, no exit frame ◀────┘
//	          ▼                                   │
//	      *GuardTaken ─────────────▶ Rejoin ◀─────┘
//	                                   │
//	             attached to the session, or the guard's exit line, or the guard's limit line, or lost
//
// After open there is exactly one attempt. A socket that ended without an exit frame is never an exit code: the guard's
// file may hold one (see [Client.Rejoin]).
//
// # A sandbox's life
//
//	Provision: get ─ 404/410 ─▶ create ─ 201 ─▶ fresh ─▶ lockdown ─▶ warm-up ─▶ ready
//	             │                └─ 409 ─▶ get (adopted) ─┘▲
//	             └─ 200 (resumed) ─────────────────────────┘   what the caller's proof covers is skipped
//
// A fresh sandbox whose lockdown or warm-up fails is deleted and refused; an adopted or resumed one is refused only.
//
// # Rules
//
// Behaviour follows an error's [Class], never its text. Which operation retries on which class, how often and how long
// apart is one table (retry.go). Errors carry no request URL, body, token or environment.
package sprites
