package plan

// Violation is a request that policy refuses. It is an error; judge it by Reason.
type Violation struct {
	Reason Reason
	// Detail says what was found, without repeating the request's text.
	Detail string
	// Anomaly marks what an honest caller hardly sends; it is audited as such.
	Anomaly bool
}

func (v *Violation) Error() string { return string(v.Reason) + ": " + v.Detail }
