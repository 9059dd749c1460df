// Package telemetry is how a process is watched: its log, its metrics, its traces and the admin port that shows them.
//
// Nothing here is global: a process makes one Log, one registry, one Tracing and one Admin and hands them on.
package telemetry
