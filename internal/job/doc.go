// Package job carries one run from its request to its result.
//
//	request ─▶ authorise ─▶ lease ─▶ plan ─▶ provision or wake ─▶ guard + run ─▶ release ─▶ result ─▶ ack
//	               │          │                   │                    │
//	            denied   denied/parked      parked/failed        stopped/lost
//
// A run has one owner at a time, the worker whose last state event stands in the journal. Whoever loses a
// compare-and-set is fenced and says nothing more about that run; whoever stops owning says so first. What must
// happen next is decided by package plan; this package does it, each step so that a successor can repeat it.
package job
