// Package rig stands outside of Wakebus for its tests: it publishes as a caller does, reads what a caller reads, starts
// workers as processes that can be killed, frozen and drained, and judges a run by its stored journal.
package rig
