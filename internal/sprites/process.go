package sprites

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Session names a running session of a Sprite. Its id is a PID and comes round again after a cold boot, so Created is
// part of the name.
type Session struct {
	// ID is the provider's id.
	ID string
	// Created is when it began, in Unix seconds; 0 when unknown.
	Created int64
}

// Chunk is a piece of output, at most 64 KiB.
type Chunk struct {
	// Stream is where it was written.
	Stream Stream
	// Data is valid until the next call of Next or Close: whoever keeps it copies it.
	Data []byte
}

// ExitSource tells who said how a process ended.
type ExitSource string

// The sources.
const (
	ExitFrame ExitSource = "frame" // the socket's exit frame
	ExitFile  ExitSource = "file"  // the guard's file, which the guest could forge
)

// Exit is how a process ended.
type Exit struct {
	// Code is 0 to 255.
	Code int
	// Source is who said so.
	Source ExitSource
	// Signal is the signal's name (KILL, TERM) when the code is one that shells use for it, else empty.
	Signal string
}

func newExit(code int, source ExitSource) Exit {
	return Exit{Code: code, Source: source, Signal: signalName(code - 128)}
}

// Process is a running command's socket. Next is for one goroutine; Close and the rest may be called from any.
type Process struct {
	client  *Client
	socket  *socket
	session Session
	sprite  string
	guard   string // empty for our own probes
	nonce   string

	held  piece  // what Next gave out last; owned by the caller of Next
	queue []part // replayed output to give out first; owned by the caller of Next
	final error  // what Next says from now on; owned by the caller of Next

	mu   sync.Mutex // protects exit
	exit *Exit
}

func newProcess(c *Client, s *socket, info sessionInfo, sprite, guard, nonce string) *Process {
	return &Process{
		client: c, socket: s, session: Session{ID: info.id, Created: info.created},
		sprite: sprite, guard: guard, nonce: nonce,
	}
}

// Session returns what to attach to and to kill.
func (p *Process) Session() Session { return p.session }

// Exit returns how the process ended, once Next returned io.EOF.
func (p *Process) Exit() (Exit, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		return Exit{}, false
	}
	return *p.exit, true
}

// Next returns the next piece of output, in the order of arrival. It blocks; ctx ends the wait, not the process, and Next
// may be called again. While nobody calls it the server is held back by TCP.
//
// io.EOF means: exit frame seen and output drained; Exit tells how. *GuardTaken means that another dial runs this
// command. Any other error but ctx's means that the socket ended without an exit frame: there is no exit code, and
// [Client.Rejoin] may know more. Errors other than ctx's are final.
func (p *Process) Next(ctx context.Context) (Chunk, error) {
	p.held.release()
	p.held = piece{}
	if len(p.queue) > 0 {
		head := p.queue[0]
		p.queue = p.queue[1:]
		return Chunk{Stream: head.stream, Data: head.data}, nil
	}
	if p.final != nil {
		return Chunk{}, p.final
	}
	for {
		got, err := p.socket.next(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return Chunk{}, err
		case err != nil:
			p.final = err
			return Chunk{}, err
		case got.kind == frameOutput:
			p.held = got
			return Chunk{Stream: got.stream, Data: got.data}, nil
		case got.kind == frameEnded:
			return p.ended(ctx, got.code)
		}
	}
}

// ended handles the exit frame: what output still comes is taken for a moment, then the process is over.
func (p *Process) ended(ctx context.Context, code int) (Chunk, error) {
	p.drain()
	p.final = p.judge(ctx, code)
	p.socket.close()
	return p.Next(ctx)
}

// drain queues output that lags behind the exit frame (a child may still hold the pipe) until the socket ends, the second
// form of the exit frame comes, or it is quiet for Drain; at most 8 of those and 1 MiB.
func (p *Process) drain() {
	quiet := time.NewTimer(p.client.cfg.Drain)
	defer quiet.Stop()
	total := 0
	for deadline := time.Now().Add(8 * p.client.cfg.Drain); total < 1<<20 && time.Now().Before(deadline); {
		select {
		case got, ok := <-p.socket.in:
			if !ok || got.kind == frameTrailer {
				return
			}
			if got.kind == frameOutput {
				p.queue = append(p.queue, part{stream: got.stream, data: append([]byte(nil), got.data...)})
				total += len(got.data)
			}
			got.release()
			quiet.Reset(p.client.cfg.Drain)
		case <-quiet.C:
			return
		}
	}
}

// judge turns an exit frame's code into what Next ends with.
func (p *Process) judge(ctx context.Context, code int) error {
	if code == noCode {
		return &Error{Op: p.socket.op, Class: ClassTransport, Opened: true, cause: fmt.Errorf("%w: exit frame carries no code", ErrNoExit)}
	}
	if code == takenCode && p.guard != "" && p.nonce != "" {
		if err := p.judgeTaken(ctx); err != nil {
			return err
		}
	}
	exit := newExit(code, ExitFrame)
	p.mu.Lock()
	p.exit = &exit
	p.mu.Unlock()
	return io.EOF
}

// judgeTaken asks the guard's file whether a 97 was the command's own: only then it returns nil.
func (p *Process) judgeTaken(ctx context.Context) error {
	gctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*p.client.cfg.CallTimeout)
	defer cancel()
	state, err := p.client.Guard(gctx, p.sprite, p.guard)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return &Error{Op: OpExec, Class: e.Class, Opened: true, cause: fmt.Errorf("%w: judge exit %d: %w", ErrNoExit, takenCode, err)}
		}
		return err
	}
	switch {
	case !state.Exists:
		return &Error{Op: OpExec, Class: ClassInvalid, cause: ErrGuardUnwritable}
	case state.Nonce != p.nonce:
		return &GuardTaken{State: state}
	}
	return nil
}

// Close ends the socket and its goroutines, not the command. It may be called more than once. After it, Next fails.
func (p *Process) Close() error {
	p.socket.close()
	return nil
}

// signalName names the signals that shells report as 128+n, by their numbers on Linux.
func signalName(n int) string {
	names := map[int]string{
		1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
		11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ", 31: "SYS",
	}
	return names[n]
}
