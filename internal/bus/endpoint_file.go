package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// FileCall is who asks for a file: the tenant of the subject and the headers, of which Sandbox-Grant says who.
type FileCall struct {
	Tenant string
	Header Header
	// Received is when the request arrived; a grant's exp is compared with it.
	Received time.Time
	// Request is the RequestHash of the body: the parameters of a read, the data of a write.
	Request string
}

// FileContent is a file, or the part of it that was asked for.
type FileContent struct {
	Data      []byte
	Size      int64  // of the whole file
	Mode      string // octal: 0644
	Truncated bool   // the file goes on after Data
}

// FileHandler reads and writes files in sandboxes. Its methods may be called concurrently, and return *EndpointError
// for what the caller should know; any other error is logged and told as a plain one. ReadFile returns at most
// MaxBytes, which is always set.
type FileHandler interface {
	ReadFile(ctx context.Context, call FileCall, params FileReadParams) (*FileContent, error)
	WriteFile(ctx context.Context, call FileCall, params FileWriteParams, data []byte) (*FileWritten, error)
}

// ParseFileRead reads the body of sandbox.file.read. Every error is an *InvalidRequest.
func ParseFileRead(data []byte) (*FileReadParams, error) {
	p := new(FileReadParams)
	has, fault := decodeStrict(data, p)
	if fault != nil {
		return nil, fault
	}
	err := firstFault(
		checkVersion(p.V), checkToken("conversation_id", p.ConversationID), checkPrincipal("drive_id", p.DriveID, has["drive_id"]),
		checkPath(p.Path),
		checkRange("offset", p.Offset, 0, 1<<62, true, "must not be negative"),
		checkRange("max_bytes", p.MaxBytes, 0, 1<<62, true, "must not be negative"),
	)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ParseFileWrite reads the header Wb-Params of sandbox.file.write. Every error is an *InvalidRequest.
func ParseFileWrite(data []byte) (*FileWriteParams, error) {
	p := new(FileWriteParams)
	has, fault := decodeStrict(data, p)
	if fault != nil {
		return nil, fault
	}
	err := firstFault(
		checkVersion(p.V), checkToken("conversation_id", p.ConversationID), checkPrincipal("drive_id", p.DriveID, has["drive_id"]),
		checkPath(p.Path), checkMode(p.Mode, has["mode"]),
	)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func checkPath(path string) *InvalidRequest {
	if path == "" || len(path) > MaxPath {
		return invalid("path", "must be 1 to 4096 bytes")
	}
	return nil
}

func checkMode(mode string, present bool) *InvalidRequest {
	if !present {
		return nil
	}
	n, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || n > 0o777 || len(mode) < 3 || len(mode) > 4 {
		return invalid("mode", "must be octal, 0000 to 0777")
	}
	return nil
}

// MaxFileBytes is the largest file that one message takes, in bytes.
func (b *Bus) MaxFileBytes() int64 { return int64(max(0, b.MaxPayload()-headroom)) }

func (a *ask) fileCall() FileCall {
	return FileCall{Tenant: a.tenant, Header: a.header, Received: a.received, Request: RequestHash(a.data)}
}

func (e *endpoints) fileRead(ctx context.Context, a *ask) error {
	params, err := ParseFileRead(a.data)
	if err != nil {
		return err
	}
	most := e.bus.MaxFileBytes()
	if params.MaxBytes == 0 || params.MaxBytes > most {
		params.MaxBytes = most
	}
	content, err := e.cfg.Files.ReadFile(ctx, a.fileCall(), *params)
	if err != nil {
		return err
	}
	if int64(len(content.Data)) > most {
		return tooLarge(most)
	}
	h := nats.Header{}
	h.Set(HeaderSize, strconv.FormatInt(content.Size, 10))
	h.Set(HeaderMode, content.Mode)
	h.Set(HeaderTruncated, strconv.FormatBool(content.Truncated))
	a.respond(content.Data, h)
	return nil
}

func (e *endpoints) fileWrite(ctx context.Context, a *ask) error {
	params, err := ParseFileWrite([]byte(a.header.Get(HeaderParams)))
	if err != nil {
		return err
	}
	written, err := e.cfg.Files.WriteFile(ctx, a.fileCall(), *params, a.data)
	if err != nil {
		return err
	}
	data, err := json.Marshal(written)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	a.respond(data, nil)
	return nil
}

func tooLarge(most int64) *EndpointError {
	return NewEndpointError(plan.ReasonContentTooLarge, fmt.Sprintf("The content is larger than one message may be: %d bytes.", most))
}
