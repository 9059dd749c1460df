package bus

// The headers of events and requests.
const (
	HeaderEvent        = "Wb-Event"
	HeaderJob          = "Wb-Job"
	HeaderRun          = "Wb-Run"
	HeaderSeq          = "Wb-Seq"
	HeaderOwner        = "Wb-Owner"
	HeaderRequest      = "Wb-Request"
	HeaderStdoutOffset = "Wb-Stdout-Offset"
	HeaderStderrOffset = "Wb-Stderr-Offset"
	HeaderTraceparent  = "traceparent"
	HeaderTracestate   = "tracestate"
	HeaderGrant        = "Sandbox-Grant"
	HeaderReplayOf     = "Wb-Replay-Of"
	HeaderDeadline     = "Wb-Deadline"
	// HeaderQueued carries a parked request's first stream sequence, so that order and identity survive parking.
	HeaderQueued = "Wb-Queued"
	// HeaderQueuedAt carries the broker's time of that first storing (RFC 3339, nanoseconds).
	HeaderQueuedAt     = "Wb-Queued-At"
	HeaderRetryable    = "Wb-Retryable"
	HeaderRetryAfterMs = "Wb-Retry-After-Ms"
	HeaderLastSeq      = "Wb-Last-Seq"
	HeaderMore         = "Wb-More"
	HeaderParams       = "Wb-Params"
	HeaderSize         = "Wb-Size"
	HeaderMode         = "Wb-Mode"
	HeaderTruncated    = "Wb-Truncated"
)

// NoOwner is the Wb-Owner of an event after which nobody owns the run.
const NoOwner = "-"
