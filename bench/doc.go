// Command bench measures Wakebus beside what users would pick instead, and how it grows, and writes docs/performance.md.
// It is a module of its own, so that those others are no dependencies of the project. run.sh says what it needs.
package main
