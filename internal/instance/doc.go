// Package instance runs all of Wakebus in one process: an embedded broker, an in-memory Redis, the Sprites emulator,
// workers and, when asked, a terminal gateway, on loopback.
//
// `worker dev`, `worker demo`, `worker bench` and the end-to-end tests start the same one. What is kept in its folder
// survives a restart: streams, links and Sprites do; leases do not, because that Redis lives in memory.
package instance
