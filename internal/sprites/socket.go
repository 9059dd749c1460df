package sprites

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	pieceSize    = 64 << 10 // output is handed on in pieces of at most this, however large the frame
	pieceQueue   = 2        // pieces read ahead of the consumer; beyond it TCP pushes back
	textFrameMax = 64 << 10 // of a text frame; the rest is skipped
	frameMax     = 16 << 20 // of any frame. SDKs allow 10 MiB
	writeTimeout = 10 * time.Second
)

// pieces are shared by all sockets, so that an idle one holds no buffer.
var pieces = sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }}

// piece is one event of a socket on its way to the consumer.
type piece struct {
	frame
	buf *[]byte // owner of data, to be returned to the pool; nil when there is none
}

func (p piece) release() {
	if p.buf != nil {
		pieces.Put(p.buf)
	}
}

// socket is one open WebSocket. It owns two goroutines, which close ends: a reader, which hands pieces on and stops
// reading when nobody takes them, and a keepalive.
type socket struct {
	conn    *websocket.Conn
	op      Operation
	offsets bool // the server says that it honours output_offset
	pings   pingPolicy
	metrics *metrics

	in   chan piece // closed by the reader, after err was set
	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup

	raw     atomic.Bool  // a PTY: binary messages are output without a stream id
	heard   atomic.Int64 // unix ns of the last frame, or of the moment we began to listen again
	blocked atomic.Bool  // the reader waits for the consumer, not for the server
	dead    atomic.Pointer[error]
	err     error // why in was closed; owned by the reader until then
}

type pingPolicy struct {
	every, limit time.Duration
}

// close ends both goroutines and the connection. It may be called more than once and concurrently, and returns when all
// is gone. No closing handshake: the server lingers for seconds after an exit, and the session does not depend on it.
func (s *socket) close() {
	s.once.Do(func() {
		close(s.done)
		_ = s.conn.CloseNow()
		s.wg.Wait()
		for p := range s.in {
			p.release()
		}
		s.metrics.sockets.Dec()
	})
}

// fail closes the connection for a reason of ours, which the consumer is then told.
func (s *socket) fail(reason error) {
	s.dead.CompareAndSwap(nil, &reason)
	_ = s.conn.CloseNow()
}

func (s *socket) read() {
	defer s.wg.Done()
	defer close(s.in)
	for {
		kind, r, err := s.conn.Reader(context.Background()) // ended by closing the connection
		if err == nil {
			s.hear()
			err = s.message(kind, r)
		}
		if err != nil {
			s.err = plainClose(err)
			if reason := s.dead.Load(); reason != nil {
				s.err = *reason
			}
			return
		}
		s.hear()
	}
}

// plainClose keeps the code of a close frame and drops its words, which are the peer's.
func plainClose(err error) error {
	if code := websocket.CloseStatus(err); code != -1 {
		return fmt.Errorf("closed with status %d", int(code))
	}
	return cut(err)
}

func (s *socket) hear() { s.heard.Store(time.Now().UnixNano()) }

// message reads one message and hands its pieces on.
func (s *socket) message(kind websocket.MessageType, r io.Reader) error {
	if kind == websocket.MessageText {
		return s.text(r)
	}
	stream := Stdout
	for first := true; ; first = false {
		buf, ok := pieces.Get().(*[]byte)
		if !ok {
			return ErrClosed
		}
		n, err := readPiece(r, *buf)
		if err != nil && !errors.Is(err, io.EOF) {
			pieces.Put(buf)
			return err
		}
		data := (*buf)[:n]
		out := piece{frame: frame{kind: frameOutput, stream: stream, data: data}, buf: buf}
		if first && !s.raw.Load() {
			out.frame = parseBinary(data)
			stream = out.stream
		}
		if out.kind == frameEnded || out.kind == frameTrailer {
			// An ending is all in its code. With its buffer every command would take one along that nobody gives back.
			pieces.Put(buf)
			out.buf, out.data = nil, nil
		}
		last := errors.Is(err, io.EOF)
		switch {
		case out.kind == frameIgnored, out.kind == frameOutput && len(out.data) == 0:
			pieces.Put(buf)
			if !last { // an unknown frame: skip what is left of it
				_, err = io.Copy(io.Discard, r)
				return err
			}
		default:
			if err := s.hand(out); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// readPiece fills buf as far as one message goes. It returns io.EOF with the last bytes.
func readPiece(r io.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *socket) text(r io.Reader) error {
	msg, err := io.ReadAll(io.LimitReader(r, textFrameMax))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	f := parseText(msg)
	if f.kind == frameIgnored {
		return nil
	}
	if f.kind == frameInfo { // an attach learns here whether binary messages carry a stream id
		s.raw.Store(f.info.tty)
	}
	if f.kind == frameEnded && !s.raw.Load() { // the binary frame is the one that counts, as for every SDK
		f.kind = frameTrailer
	}
	return s.hand(piece{frame: f})
}

// hand gives a piece to the consumer, waiting for as long as it takes.
func (s *socket) hand(p piece) error {
	select {
	case s.in <- p:
		return nil
	default:
	}
	s.blocked.Store(true)
	defer func() {
		s.hear()
		s.blocked.Store(false)
	}()
	select {
	case s.in <- p:
		return nil
	case <-s.done:
		p.release()
		return ErrClosed
	}
}

// keepalive pings, and fails the socket when it listened for the limit and heard nothing. While the consumer makes us
// wait we do not listen, so silence then says nothing.
func (s *socket) keepalive() {
	defer s.wg.Done()
	tick := time.NewTicker(s.pings.every)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.pings.every)
		err := s.conn.Ping(ctx)
		cancel()
		if err == nil {
			s.hear()
			continue
		}
		if !s.blocked.Load() && time.Since(time.Unix(0, s.heard.Load())) >= s.pings.limit {
			s.fail(ErrSilent)
			return
		}
	}
}

// next takes the next piece. The error of an ended socket is transport-class and says that it had opened.
func (s *socket) next(ctx context.Context) (piece, error) {
	select {
	case p, ok := <-s.in:
		if ok {
			return p, nil
		}
		return piece{}, s.ended()
	default:
	}
	select {
	case p, ok := <-s.in:
		if ok {
			return p, nil
		}
		return piece{}, s.ended()
	case <-ctx.Done():
		return piece{}, &Error{Op: s.op, Class: contextClass(ctx), Opened: true, cause: context.Cause(ctx)}
	}
}

func contextClass(ctx context.Context) Class {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ClassTimeout
	}
	return ClassCanceled
}

// ended makes the error for a socket that is over. Only after in was closed.
func (s *socket) ended() error {
	select {
	case <-s.done:
		return &Error{Op: s.op, Class: ClassCanceled, Opened: true, cause: ErrClosed}
	default:
	}
	cause := fmt.Errorf("%w: %w", ErrNoExit, s.err)
	if errors.Is(s.err, ErrSilent) {
		cause = fmt.Errorf("%w: %w", ErrNoExit, ErrSilent)
	}
	return &Error{Op: s.op, Class: ClassTransport, Opened: true, cause: cause}
}

// introduction waits for session_info. What else comes before it is dropped: it must be the first frame.
func (s *socket) introduction(ctx context.Context) (sessionInfo, error) {
	p, err := s.next(ctx)
	if err != nil {
		return sessionInfo{}, fmt.Errorf("%w: %w", err, ErrNoSessionInfo)
	}
	defer p.release()
	if p.kind != frameInfo {
		return sessionInfo{}, &Error{Op: s.op, Class: ClassTransport, Opened: true, cause: ErrNoSessionInfo}
	}
	return p.info, nil
}

// write sends one message, bounded by writeTimeout and ctx. A failed write ends the socket.
func (s *socket) write(ctx context.Context, kind websocket.MessageType, msg []byte) error {
	wctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.conn.Write(wctx, kind, msg); err != nil {
		e := failure(ctx, s.op, err)
		return &Error{Op: s.op, Class: e.Class, Opened: true, cause: e.cause}
	}
	return nil
}

// sendInput sends all of a command's standard input (at most InputMax), then EOF. One message arrives whole or not at all.
func (s *socket) sendInput(ctx context.Context, data []byte) error {
	if len(data) > 0 {
		msg := append(make([]byte, 0, len(data)+1), frameStdin)
		if err := s.write(ctx, websocket.MessageBinary, append(msg, data...)); err != nil {
			return err
		}
	}
	return s.write(ctx, websocket.MessageBinary, []byte{frameStdinEOF})
}
