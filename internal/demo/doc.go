// Package demo walks through Wakebus's main job on an instance of its own and checks every step from the outside: by
// what a caller sees on the bus and by the emulator's own call log.
package demo
