package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// readLimit is the largest message that is read at all, if only to refuse it and go on; a larger one ends the socket.
const readLimit = 1 << 20

// buffers lends out the memory for one message, so that an idle socket holds none.
var buffers = sync.Pool{New: func() any { b := make([]byte, frame.MaxControl+1); return &b }}

// serveTerminal is GET /v1/terminal.
func (g *Gateway) serveTerminal(w http.ResponseWriter, r *http.Request) {
	switch {
	case !allowOrigin(r, g.cfg.Origins, g.cfg.Open):
		http.Error(w, "this origin may not open terminals", http.StatusForbidden)
		return
	case !slices.Contains(subprotocols(r), frame.Protocol):
		http.Error(w, "the subprotocol "+frame.Protocol+" is needed", http.StatusBadRequest)
		return
	}
	if !g.enter() {
		w.Header().Set("Retry-After", "2")
		http.Error(w, "the gateway is full or stopping", http.StatusServiceUnavailable)
		return
	}
	defer g.exit()
	// The origin was judged above, more strictly than the library would.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{frame.Protocol},
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // the library has answered
	}
	conn.SetReadLimit(readLimit)
	defer conn.CloseNow()
	e := &edge{gw: g, conn: conn, origin: r.Header.Get("Origin"), ticket: ticketOf(r)}
	e.serve(g.ctx)
}

// enter counts a socket; false when there is no room.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining || g.sockets >= g.cfg.MaxSockets {
		return false
	}
	g.sockets++
	g.edges.Add(1)
	g.met.sockets.Inc()
	return true
}

func (g *Gateway) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sockets--
	g.edges.Done()
	g.met.sockets.Dec()
}

// seat counts a person's socket; false when they have too many.
func (g *Gateway) seat(v Visitor) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := v.Page.Tenant + "/" + v.User
	if g.perUser[k] >= g.cfg.MaxPerUser {
		return false
	}
	g.perUser[k]++
	return true
}

func (g *Gateway) unseat(v Visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := v.Page.Tenant + "/" + v.User
	if g.perUser[k]--; g.perUser[k] <= 0 {
		delete(g.perUser, k)
	}
}

// edge is one browser's socket. serve owns it.
type edge struct {
	gw             *Gateway
	conn           *websocket.Conn
	origin, ticket string
	page           string
}

var _ socket = (*edge)(nil)

func (e *edge) Write(ctx context.Context, text bool, p []byte) error {
	typ := websocket.MessageBinary
	if text {
		typ = websocket.MessageText
	}
	return e.conn.Write(ctx, typ, p)
}

func (e *edge) Ping(ctx context.Context) error { return e.conn.Ping(ctx) }

func (e *edge) Close(code int, reason string) { _ = e.conn.Close(websocket.StatusCode(code), reason) }

// serve takes the socket from its hello to its end.
func (e *edge) serve(ctx context.Context) {
	hello, err := e.hello()
	if errors.Is(err, errSilent) {
		return
	}
	if err != nil {
		e.refuse(frame.CodeBadFrame, "The first frame must be a hello.", frame.ReasonDenied)
		return
	}
	e.page = hello.Page
	visitor, err := e.admit(hello)
	if err != nil {
		e.denied(err)
		return
	}
	e.page = visitor.Page.ID
	if !e.gw.seat(visitor) {
		e.refuse(frame.CodeTooMany, "You have too many terminals open.", frame.ReasonTooMany)
		return
	}
	defer e.gw.unseat(visitor)
	v, reason := e.gw.join(e, visitor, hello)
	if v == nil {
		e.refuse(frame.CodeTooMany, "This terminal takes no more viewers now.", reason)
		return
	}
	e.run(ctx, v)
}

// run moves frames both ways until one side ends.
func (e *edge) run(ctx context.Context, v *viewer) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		end := v.write(ctx)
		v.sess.leave(v) // before the close, which may take its time
		e.finish(*end)
		cancel()
	})
	e.read(ctx, v)
	v.sess.leave(v)
	cancel()
	writer.Wait()
}

// errSilent: no hello came in its time, and the socket has been told so and closed.
var errSilent = errors.New("no hello")

// hello reads the first frame. A socket that keeps silent is told why it is closed.
func (e *edge) hello() (frame.Client, error) {
	ctx, cancel := context.WithTimeout(e.gw.intake, e.gw.cfg.HelloTimeout)
	defer cancel()
	closed := make(chan struct{})
	heard := context.AfterFunc(ctx, func() {
		defer close(closed)
		e.refuse(frame.CodeBadFrame, fmt.Sprintf("No hello came within %s.", e.gw.cfg.HelloTimeout), frame.ReasonSlow)
	})
	typ, data, err := e.conn.Read(context.WithoutCancel(ctx)) // the close ends it
	if !heard() {
		<-closed
		return frame.Client{}, errSilent
	}
	if err != nil {
		return frame.Client{}, fmt.Errorf("read hello: %w", err)
	}
	if typ != websocket.MessageText {
		return frame.Client{}, fmt.Errorf("%w: binary before hello", frame.ErrMalformed)
	}
	c, err := frame.ParseClient(data)
	if err == nil && c.Type != frame.TypeHello {
		err = fmt.Errorf("%w: %s before hello", frame.ErrMalformed, c.Type)
	}
	return c, err
}

func (e *edge) admit(hello frame.Client) (Visitor, error) {
	ctx, cancel := context.WithTimeout(e.gw.intake, e.gw.cfg.CallTimeout)
	defer cancel()
	visitor, err := e.gw.keeper.Admit(ctx, e.ticket, e.origin, hello.Page)
	if err != nil {
		return Visitor{}, fmt.Errorf("admit visitor: %w", err)
	}
	if hello.Page != "" && visitor.Page.ID != hello.Page {
		return Visitor{}, &Refused{Reason: plan.ReasonPageNotFound, Message: "The ticket is for another page."}
	}
	return visitor, nil
}

// denied answers who may not, and who could not be asked about, differently: the second may come back.
func (e *edge) denied(err error) {
	var refused *Refused
	if errors.As(err, &refused) {
		e.gw.strangers.Info().Str("page", e.page).Str("origin", e.origin).Str("reason", string(refused.Reason)).Str("detail", refused.Detail).Msg("visitor refused")
		e.refuse(frame.Code(refused.Reason), refused.Sentence(), frame.ReasonDenied)
		return
	}
	e.gw.log.Warn().Err(err).Msg("visitor not checked")
	reason := plan.ReasonWorkerUnavailable
	e.refuse(frame.Code(reason), reason.Sentence(), frame.ReasonFailed)
}

// refuse ends a socket that never became a viewer.
func (e *edge) refuse(code frame.Code, message string, reason frame.CloseReason) {
	if e.gw.intake.Err() != nil {
		reason = frame.ReasonRestarting
	}
	f := frame.NewError(code, message, e.page, true)
	e.finish(ending{reason: reason, message: &f})
}

// finish says why it ends and closes with the reason's code.
func (e *edge) finish(end ending) {
	e.gw.met.closes.WithLabelValues(string(end.reason)).Inc()
	ctx, cancel := context.WithTimeout(context.Background(), e.gw.cfg.WriteTimeout)
	defer cancel()
	if end.message != nil {
		_ = e.Write(ctx, true, end.message.Encode()) // a peer that is gone needs no reason
	}
	closed := frame.Server{Type: frame.TypeClosed, Reason: end.reason, ExitCode: end.code, RetryAfterMs: end.retry.Milliseconds()}
	_ = e.Write(ctx, true, closed.Encode())
	e.Close(end.reason.Status(), string(end.reason))
}

// read takes the viewer's frames until the socket ends.
func (e *edge) read(ctx context.Context, v *viewer) {
	for {
		typ, r, err := e.conn.Reader(ctx)
		if err != nil {
			return
		}
		buf, _ := buffers.Get().(*[]byte)
		more, err := e.frame(ctx, v, typ, r, *buf)
		buffers.Put(buf)
		if err != nil || !more {
			return
		}
	}
}

// frame takes one message; false ends the socket.
func (e *edge) frame(ctx context.Context, v *viewer, typ websocket.MessageType, r io.Reader, buf []byte) (bool, error) {
	limit := frame.MaxInput
	if typ == websocket.MessageText {
		limit = frame.MaxControl
	}
	n, err := io.ReadFull(r, buf[:limit+1])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("read frame: %w", err)
	}
	rest, err := io.Copy(io.Discard, r)
	if err != nil {
		return false, fmt.Errorf("read frame: %w", err)
	}
	if typ == websocket.MessageBinary {
		v.sess.input(v, buf[:n], n+int(rest))
		return true, nil
	}
	return e.control(ctx, v, buf[:n]), nil
}

// control takes one control frame; false ends the socket.
func (e *edge) control(ctx context.Context, v *viewer, data []byte) bool {
	c, err := frame.ParseClient(data)
	if err != nil {
		v.sess.complain(v, frame.CodeBadFrame, "The gateway did not understand a frame: "+err.Error())
		return true
	}
	switch c.Type {
	case frame.TypeResize:
		v.sess.resized(v, c.Size)
	case frame.TypeAck:
		v.sess.shown(v, c.Output)
	case frame.TypeGrant:
		v.sess.granted(ctx, v, c.Grant)
	case frame.TypeDetach:
		v.sess.close(v, frame.ReasonDetached)
	case frame.TypeHello, frame.TypePhase, frame.TypeGap, frame.TypeError, frame.TypeClosed:
		v.sess.complain(v, frame.CodeBadFrame, "A second hello is not allowed.")
	}
	return true
}

// complain tells a viewer about a frame that changed nothing.
func (s *session) complain(v *viewer, code frame.Code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.sendLocked(frame.NewError(code, message, s.page.ID, false))
}

// shown opens a flow-controlled viewer's window.
func (s *session) shown(v *viewer, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.flow.ack(offset, v.cursor) {
		v.signal()
	}
}

// close ends one viewer.
func (s *session) close(v *viewer, reason frame.CloseReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.closeLocked(reason, 0)
}

// isTimeout tells a frame that took too long from a socket that is gone.
func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
