package plan

// OwnerIs is whose a run is, seen from the worker that got its message.
type OwnerIs string

// The closed set of owners.
const (
	// OwnerSelf: this worker in this epoch.
	OwnerSelf OwnerIs = "self"
	// OwnerPeer: another worker, or this one before it restarted.
	OwnerPeer OwnerIs = "peer"
	// OwnerNobody: the last owner said that it stopped owning.
	OwnerNobody OwnerIs = "nobody"
)

// ReceiveFacts is what Receive looks at when a request's message arrives.
type ReceiveFacts struct {
	// Known: the run's journal has an event. When it has none the rest does not matter.
	Known bool
	Phase Phase
	Owner OwnerIs
	// Queued is the sequence that the journal recorded; Message is this message's own or, once parked, the one it carries.
	Queued, Message uint64
	// Waiting: the last event is waiting and its until has not passed.
	Waiting bool
	// JustReconnected: less than one AckWait has passed since this worker's connection came back.
	JustReconnected bool
}

// ReceiveAction is what to do with a message.
type ReceiveAction string

// The closed set of what to do with a message.
const (
	// ReceiveClaim: publish accepted, expecting an empty journal.
	ReceiveClaim ReceiveAction = "claim"
	// ReceiveDuplicate: the same job was published twice; ack, do nothing.
	ReceiveDuplicate ReceiveAction = "duplicate"
	// ReceiveRefresh: our own message came again; keep running, use the new ack handle.
	ReceiveRefresh ReceiveAction = "refresh_handle"
	// ReceiveTakeOver: publish taken_over, then ask TakeOver.
	ReceiveTakeOver ReceiveAction = "take_over"
	// ReceiveParkAgain: it waits for a time that has not come; park it until then, then ack.
	ReceiveParkAgain ReceiveAction = "park_again"
	// ReceiveAfterResult: it has its result; repeat what must follow one, then ack.
	ReceiveAfterResult ReceiveAction = "repeat_after_result"
	// ReceiveLater: nak with one AckWait of delay; silence after a reconnect does not prove that the owner died.
	ReceiveLater ReceiveAction = "later"
)

// Receive says what to do with a message.
func Receive(f ReceiveFacts) ReceiveAction {
	switch {
	case !f.Known || f.Phase == PhaseNone:
		return ReceiveClaim
	case f.Message != f.Queued:
		return ReceiveDuplicate
	case f.Phase == PhaseResult:
		return ReceiveAfterResult
	case f.Owner == OwnerSelf:
		return ReceiveRefresh
	case f.Owner == OwnerPeer && f.JustReconnected:
		return ReceiveLater
	case f.Waiting:
		return ReceiveParkAgain
	}
	return ReceiveTakeOver
}
