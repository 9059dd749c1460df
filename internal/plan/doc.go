// Package plan decides what must happen to a run and to its sandbox: facts in, a decision out.
//
// Everything here is a pure function over plain values: no context, no clock, no I/O, and no other package of
// Wakebus. The closed vocabularies that the other packages speak (reasons, outcomes, phases, plans) live here
// too, so that each word is declared once.
//
// A run's phases only go forward:
//
//	accepted ──▶ planned ──▶ dialing ──▶ started ──▶ stopping ──▶ result
//	    │            │           │           │                       ▲
//	    └────────────┴───────────┴───────────┴───────────────────────┘
//
// waiting, taken_over and heartbeat repeat the phase they find.
package plan
