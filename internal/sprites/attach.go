package sprites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// AttachRequest asks for a running session's output from where somebody left off.
type AttachRequest struct {
	// Sprite is where it runs.
	Sprite string
	// Tenant is whose, for the gate.
	Tenant string
	// Session is which; its Created is compared.
	Session Session
	// Guard names the run's guard file, so that a 97 can be judged; may be empty.
	Guard string
	// Delivered counts the bytes of stdout and stderr together that are safe already.
	Delivered int64
	// Tail is the end of those bytes in the order of arrival: the last TailMax, or all if fewer.
	Tail []byte
	// Stdin is sent, then EOF; nil sends nothing. It is what the command was started with: nobody knows how much of it came
	// through the connection that was lost.
	Stdin []byte
}

func (r *AttachRequest) validate() error {
	var problems []error
	if !ValidName(r.Sprite) {
		problems = append(problems, errors.New("sprite name is not a DNS label"))
	}
	if !validSessionID(r.Session.ID) {
		problems = append(problems, errors.New("malformed session id"))
	}
	if r.Guard != "" && !guardShape.MatchString(r.Guard) {
		problems = append(problems, errors.New("malformed guard name"))
	}
	if len(r.Stdin) > InputMax {
		problems = append(problems, fmt.Errorf("more than %d bytes of stdin", InputMax))
	}
	if want := min(r.Delivered, TailMax); r.Delivered < 0 || int64(len(r.Tail)) != want {
		problems = append(problems, fmt.Errorf("tail must be the last %d of the delivered bytes", want))
	}
	return errors.Join(problems...)
}

// Attach opens the socket of a running session and finds where its output goes on: by the server's offset where it has
// one, else by the tail standing exactly once in the replayed scrollback, else not at all, which the Alignment says as a
// gap. No byte is given out twice; what a gap may have swallowed is not given out. Replayed output may come as stdout
// whatever it was.
//
// ClassNotFound means that the session is over (or its id names another process: ErrReplaced); the guard's file may know
// how it ended. Attach blocks for a few DialTimeouts at most, and up to 5 s more for the replay.
func (c *Client) Attach(ctx context.Context, req AttachRequest) (*Process, Alignment, error) {
	if err := req.validate(); err != nil {
		return nil, Alignment{}, fmt.Errorf("attach: %w", &Error{Op: OpAttach, Class: ClassInvalid, cause: err})
	}
	query := url.Values{
		"stdin":         {strconv.FormatBool(req.Stdin != nil)},
		"output_offset": {strconv.FormatInt(req.Delivered-int64(len(req.Tail)), 10)},
	}
	s, info, err := c.attach(ctx, req.Sprite, req.Tenant, req.Session, query)
	if err != nil {
		return nil, Alignment{}, err
	}
	p := newProcess(c, s, info, req.Sprite, req.Guard, "")
	alignment, err := p.start(ctx, &req, info)
	if err != nil {
		_ = p.Close()
		return nil, Alignment{}, fmt.Errorf("attach to session %s of %s: %w", req.Session.ID, req.Sprite, err)
	}
	return p, alignment, nil
}

// attach opens the socket by the path form of the address and checks whose it is.
func (c *Client) attach(ctx context.Context, sprite, tenant string, session Session, query url.Values) (*socket, sessionInfo, error) {
	var s *socket
	var info sessionInfo
	err := c.retrying(ctx, OpAttach, tenant, func(ctx context.Context, _ int) error {
		var err error
		s, info, err = c.dial(ctx, OpAttach, c.spriteURL(sprite, query, "exec", session.ID), false)
		return err
	})
	if err == nil && !session.same(Session{ID: info.id, Created: info.created}) {
		s.close()
		err = &Error{Op: OpAttach, Class: ClassNotFound, Opened: true, cause: ErrReplaced}
	}
	if err != nil {
		return nil, sessionInfo{}, fmt.Errorf("attach to session %s of %s: %w", session.ID, sprite, err)
	}
	return s, info, nil
}

// start sends input and aligns the replay.
func (p *Process) start(ctx context.Context, req *AttachRequest, info sessionInfo) (Alignment, error) {
	if info.tty {
		return Alignment{}, &Error{Op: OpAttach, Class: ClassInvalid, Opened: true, cause: errors.New("session is a terminal")}
	}
	if req.Stdin != nil {
		if err := p.socket.sendInput(ctx, req.Stdin); err != nil {
			return Alignment{}, fmt.Errorf("send stdin: %w", err)
		}
	}
	if p.socket.offsets {
		return p.alignByOffset(ctx, req, info.offset)
	}
	return p.alignByTail(ctx, req)
}

// alignByOffset compares the first bytes that the server sends from our offset with ours, and drops them. begins is where
// the server says that it really starts: behind our offset, when its scrollback has lost what came before. Bytes that are
// alike prove nothing then, since much output repeats itself.
func (p *Process) alignByOffset(ctx context.Context, req *AttachRequest, begins *int64) (Alignment, error) {
	want := req.Tail
	if from := req.Delivered - int64(len(want)); begins != nil && *begins > from {
		if missing := *begins - req.Delivered; missing > 0 {
			return Alignment{Kind: AlignGap, Bytes: &missing}, nil
		}
		want = want[*begins-from:]
	}
	replay := newAligner(req.Tail, req.Delivered)
	rctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	for len(want) > 0 {
		got, err := p.socket.next(rctx)
		if err != nil || got.kind != frameOutput {
			return p.settleReplay(ctx, replay, got, err)
		}
		replay.feed(got.stream, got.data)
		n := min(len(want), len(got.data))
		if !bytes.Equal(want[:n], got.data[:n]) {
			got.release()
			return p.replay(ctx, replay)
		}
		if rest := got.data[n:]; len(rest) > 0 {
			p.queue = append(p.queue, part{stream: got.stream, data: append([]byte(nil), rest...)})
		}
		want = want[n:]
		got.release()
	}
	return Alignment{Kind: AlignExact}, nil
}

// alignByTail looks for the tail in the whole replay.
func (p *Process) alignByTail(ctx context.Context, req *AttachRequest) (Alignment, error) {
	return p.replay(ctx, newAligner(req.Tail, req.Delivered))
}

// replayLimit bounds how long a replay is collected: live output may follow it without a pause.
const replayLimit = 5 * time.Second

// replay collects what comes until it is quiet, too long, too much, or over, and settles.
func (p *Process) replay(ctx context.Context, a *aligner) (Alignment, error) {
	deadline := time.Now().Add(replayLimit)
	for !a.overflow && time.Now().Before(deadline) {
		qctx, cancel := context.WithTimeout(ctx, a.patience(p.client.cfg.ReplayQuiet))
		got, err := p.socket.next(qctx)
		cancel()
		if err != nil || got.kind != frameOutput {
			return p.settleReplay(ctx, a, got, err)
		}
		a.feed(got.stream, got.data)
		got.release()
	}
	return p.align(a), nil
}

// settleReplay ends the collection at something other than output: quiet, an exit, or the end of the socket.
func (p *Process) settleReplay(ctx context.Context, a *aligner, got piece, err error) (Alignment, error) {
	if ctx.Err() != nil {
		return Alignment{}, &Error{Op: OpAttach, Class: contextClass(ctx), Opened: true, cause: context.Cause(ctx)}
	}
	alignment := p.align(a)
	switch {
	case err != nil && ClassOf(err) != ClassTimeout: // over: Next says so after the replay
		p.final = err
	case err == nil && got.kind == frameEnded:
		p.drain()
		p.final = p.judge(ctx, got.code)
		p.socket.close()
	}
	return alignment, nil
}

// align queues what goes on after the delivered output.
func (p *Process) align(a *aligner) Alignment {
	rest, ok := a.result()
	p.queue = append(p.queue, rest...)
	if ok {
		return Alignment{Kind: AlignProven}
	}
	return Alignment{Kind: AlignGap}
}
