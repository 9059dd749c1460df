// Package bus is everything that Wakebus says over NATS: streams and consumers, the message contract, the journal
// of each run, the links bucket and the dead letters.
//
// It is the only package that imports nats.go. What may be said is declared in subject.go, header.go, request.go
// and event.go; the rest of the package stores and moves it. The journal decides who runs: a run is a chain of
// state events, each published with the sequence of the one before, so that of two workers that both believe they
// own a run only one can write.
package bus
