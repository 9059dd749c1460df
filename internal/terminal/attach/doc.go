// Package attach is a client of the edge protocol for a real terminal: what `terminal-gw attach` runs.
//
// It keeps what it typed until the gateway has acked it and comes back after every break with its offset, so that
// nothing is typed or shown twice.
//
//	dialling ──▶ waking ──▶ replaying ──▶ live ──▶ ended
//	    ▲                                   │
//	    └──────────── broken ◀──────────────┘
package attach
