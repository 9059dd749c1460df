// Package audit says who did what: one record per run, block, open, close, tear-down, replay, release, file access and
// operator's action.
//
// A record never carries a secret that can be recognised as one (see Redact), and a store that fails never breaks what
// is being recorded: the failure is counted, and logged once per outage.
package audit
