package emulator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// apiVersion makes go clients attach by path (sprites-go, version rules).
	apiVersion = "v0.0.1-rc46"
	// maxMessage is the largest WebSocket message taken (sprites-py, max_size).
	maxMessage = 10 << 20
	maxJSON    = 1 << 20
)

// exchange is one call and its answer. It belongs to the handler's goroutine.
type exchange struct {
	srv     *Server
	w       http.ResponseWriter
	r       *http.Request
	call    *Call
	sprite  *sprite
	fault   *Fault
	conn    *conn
	release func() // gives the Sprite's activity back; may be called twice
}

// does says whether the call suffers action a.
func (x *exchange) does(a Action) bool { return x.fault != nil && x.fault.Do == a }

func (x *exchange) mutated(m Mutation) bool { return x.srv.cfg.Mutation == m }

// note records something about the call.
func (x *exchange) note(f func(*Call)) { x.srv.calls.update(x.call, f) }

// drop closes the connection without a word.
func (x *exchange) drop() {
	_ = x.conn.Close()
	panic(http.ErrAbortHandler)
}

// acquire wakes the Sprite and holds it running until release.
func (x *exchange) acquire() error {
	if err := x.sprite.acquire(x.r.Context()); err != nil {
		return err
	}
	x.release = sync.OnceFunc(x.sprite.release)
	return nil
}

func (x *exchange) json(status int, v any) {
	x.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	x.w.WriteHeader(status)
	_ = json.NewEncoder(x.w).Encode(v) // the client may have left
}

// text answers as the layer inside the machine does (Sprites wire: plain lines).
func (x *exchange) text(status int, format string, args ...any) {
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(status)
	_, _ = fmt.Fprintf(x.w, format+"\n", args...)
}

type errorBody struct {
	Error string `json:"error"`
}

func (x *exchange) fail(status int, msg string) { x.json(status, errorBody{Error: msg}) }

// limitBody is a 429 (error shape C of the API).
type limitBody struct {
	Error            string `json:"error"`
	Message          string `json:"message"`
	Limit            int    `json:"limit"`
	WindowSeconds    int    `json:"window_seconds,omitempty"`
	RetryAfter       int    `json:"retry_after_seconds,omitempty"`
	CurrentCount     int    `json:"current_count,omitempty"`
	UpgradeAvailable bool   `json:"upgrade_available"`
}

// refuse answers why a Sprite could not be acquired.
func (x *exchange) refuse(err error) {
	switch {
	case errors.Is(err, ErrNoSprite):
		x.fail(http.StatusNotFound, "sprite not found")
	case errors.Is(err, errRunningLimit):
		x.json(http.StatusTooManyRequests, limitBody{
			Error: "concurrent_sprite_limit_exceeded", Message: "too many sprites are running",
			Limit: x.srv.cfg.RunningLimit, CurrentCount: x.srv.running(),
		})
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		x.drop()
	default:
		x.srv.log.Error().Err(err).Str("sprite", x.call.Sprite).Str("route", x.call.Route).Msg("cannot wake")
		x.text(http.StatusServiceUnavailable, "failed to start sprite: %v", err)
	}
}

// body decodes JSON into v; an empty body leaves v as it is. Unknown keys pass:
// SDKs differ in what they send.
func (x *exchange) body(v any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxJSON))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	return nil
}

// upgrade answers 101. It fails, already answered, when the handshake is wrong.
func (x *exchange) upgrade() (*websocket.Conn, error) {
	x.w.Header().Set("X-Sprite-Capabilities", x.srv.capabilities())
	ws, err := websocket.Accept(x.w, x.r, &websocket.AcceptOptions{
		CompressionMode: websocket.CompressionDisabled,
		// The bearer token is the check; a browser page cannot know it.
		InsecureSkipVerify: true,
	})
	if err != nil {
		return nil, err
	}
	x.conn.upgraded.Store(true)
	ws.SetReadLimit(maxMessage + 1)
	return ws, nil
}

// ignore reads and drops what the client says on a socket that only the server
// speaks on; the context ends when it leaves. The package's own CloseRead would
// hold a socket for seconds on which a client says anything.
func (x *exchange) ignore(ws *websocket.Conn) context.Context {
	ctx, cancel := context.WithCancel(x.r.Context())
	x.srv.goOwned(func() { // ended by closing the socket
		defer cancel()
		for {
			_, r, err := ws.Reader(ctx)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err != nil {
				return
			}
		}
	})
	return ctx
}

func (s *Server) capabilities() string {
	if s.cfg.Offset {
		return "signal,output_offset"
	}
	return "signal"
}

// sendText writes one JSON text frame.
func sendText(ctx context.Context, ws *websocket.Conn, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return ws.Write(ctx, websocket.MessageText, raw)
}

// stream is an NDJSON answer, flushed line by line.
type stream struct {
	x *exchange
	c *http.ResponseController
}

func (x *exchange) ndjson() *stream {
	x.w.Header().Set("Content-Type", "application/x-ndjson")
	x.w.Header().Set("Cache-Control", "no-cache")
	s := &stream{x: x, c: http.NewResponseController(x.w)}
	x.w.WriteHeader(http.StatusOK)
	s.flush()
	return s
}

func (s *stream) flush() {
	if !s.x.mutated(MutateBufferedNDJSON) {
		_ = s.c.Flush()
	}
}

// send fails once the client has left.
func (s *stream) send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := s.x.w.Write(append(raw, '\n')); err != nil {
		return err
	}
	s.flush()
	return s.x.r.Context().Err()
}

// recorder notes the status, counts body bytes for FaultDropAfter, and lets
// hijacking through.
type recorder struct {
	http.ResponseWriter
	x    *exchange
	done bool
	sent int64
}

// WriteHeader notes the status once.
func (w *recorder) WriteHeader(status int) {
	if !w.done {
		w.done = true
		w.x.note(func(c *Call) { c.Status = status })
	}
	if w.x.does(FaultLost) {
		w.x.conn.mute.Store(true)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (w *recorder) Write(p []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	if w.x.does(FaultDropAfter) && w.sent+int64(len(p)) > w.x.fault.Bytes {
		n, _ := w.ResponseWriter.Write(p[:w.x.fault.Bytes-w.sent])
		w.sent += int64(n)
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		w.x.drop()
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

// Unwrap serves http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is the upgrade.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.x.does(FaultLost) {
		w.x.conn.mute.Store(true)
	}
	w.x.note(func(c *Call) { c.Status = http.StatusSwitchingProtocols })
	w.done = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
