package bus

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// MaxColumns bounds both sides of a terminal's window.
	MaxColumns = 1000
	// MaxBy is the longest name of who asks for a cancel, in bytes.
	MaxBy = 128
	// MaxWhy is the longest sentence of why, in bytes.
	MaxWhy = 1024
)

// ParseTerminal reads the body of terminal.open. Every error is an *InvalidRequest.
func ParseTerminal(data []byte) (*TerminalRequest, error) {
	r := new(TerminalRequest)
	has, fault := decodeStrict(data, r)
	if fault != nil {
		return nil, fault
	}
	err := firstFault(
		checkVersion(r.V),
		checkToken("open_id", r.OpenID),
		checkToken("page_id", r.PageID),
		checkPrincipal("drive_id", r.DriveID, has["drive_id"]),
		checkRange("cols", int64(r.Cols), 1, MaxColumns, true, "must be 1 to 1000"),
		checkRange("rows", int64(r.Rows), 1, MaxColumns, true, "must be 1 to 1000"),
	)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Check judges the deadline as ExecRequest.Check does.
func (r *TerminalRequest) Check(now time.Time) error { return checkDeadline(r.Deadline, now) }

// ParseEnd reads the body of sandbox.end. Every error is an *InvalidRequest.
func ParseEnd(data []byte) (*EndRequest, error) {
	r := new(EndRequest)
	has, fault := decodeStrict(data, r)
	if fault != nil {
		return nil, fault
	}
	var which *InvalidRequest
	if has["conversation_id"] == has["page_id"] {
		which = invalid("conversation_id", "or page_id must be there, and only one of them")
	}
	err := firstFault(
		checkVersion(r.V),
		checkToken("job_id", r.JobID),
		which,
		checkOptionalToken("conversation_id", r.ConversationID, has["conversation_id"]),
		checkOptionalToken("page_id", r.PageID, has["page_id"]),
		checkPrincipal("drive_id", r.DriveID, has["drive_id"]),
	)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ParseCancel reads the body of a cancel; an empty one is a cancel that names nobody. Every error is an
// *InvalidRequest.
func ParseCancel(data []byte) (*CancelRequest, error) {
	r := new(CancelRequest)
	if len(data) == 0 {
		return r, nil
	}
	if _, fault := decodeStrict(data, r); fault != nil {
		return nil, fault
	}
	err := firstFault(
		checkRange("by", int64(len(r.By)), 0, MaxBy, true, "must be at most 128 bytes"),
		checkRange("why", int64(len(r.Why)), 0, MaxWhy, true, "must be at most 1024 bytes"),
	)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// RequestID finds the one job_id or open_id of a body, even of one that is otherwise invalid, so that its denial can
// be said where the caller listens. It is not ok when there is none, when it could not become a subject token, or
// when more than one is given.
func RequestID(data []byte) (id string, ok bool) {
	if len(data) > maxBody {
		return "", false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if d, isDelim := tok.(json.Delim); err != nil || !isDelim || d != '{' {
		return "", false
	}
	found := 0
	for dec.More() {
		tok, err := dec.Token()
		name, isString := tok.(string)
		if err != nil || !isString {
			break
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			break
		}
		if name != "job_id" && name != "open_id" {
			continue
		}
		found++
		if json.Unmarshal(value, &id) != nil {
			return "", false
		}
	}
	return id, found == 1 && plan.ValidToken(id)
}
