// Package bus is everything that Wakebus says over NATS: streams and consumers, the message contract, the journal
// of each run, the links bucket and the dead letters.
//
// It is the only package that imports nats.go. What may be said is declared in subject.go, header.go, request.go
// and event.go; the rest of the package stores and moves it. The journal decides who runs: a run is a chain of
// state events, each published with the sequence of the one before, so that of two workers that both believe they
// own a run only one can write.
//
//	(nothing) --Claim--> accepted -> planned -> dialing -> started -> stopping -> result
//	                        |           |          |          |           |
//	                        +-----------+-- each phase may repeat, and may go to any later one
//
//	an owner holds the run until it has said    result    (Chain.Result: nothing follows)
//	                                  or has said    waiting   by nobody (Chain.Release: then parked or given back)
//	                                  or another said taken_over (TakeOver: the former one is fenced, and silent)
//
// A request moves by itself: the Pool takes it from SANDBOX when a slot is free; its Handler acks it, gives it back, or
// parks it in SANDBOX_RETRY until a time and then acks it.
package bus
