package attach

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// message is one frame from the gateway.
type message struct {
	text bool
	data []byte
}

// connection serves one socket to its end. The error says why it could not be opened, or how it broke.
func (c *client) connection(ctx context.Context) error {
	c.answered, c.replay, c.arrived, c.retry, c.message = false, false, 0, 0, ""
	ticket, err := c.cfg.Ticket(ctx)
	if err != nil {
		return fmt.Errorf("get a ticket: %w", err)
	}
	protocols := []string{frame.Protocol}
	if ticket != "" {
		protocols = append(protocols, frame.TicketPrefix+ticket)
	}
	dial, cancel := context.WithTimeout(ctx, 10*time.Second)
	conn, answer, err := websocket.Dial(dial, c.address, &websocket.DialOptions{Subprotocols: protocols, HTTPClient: c.cfg.HTTP})
	cancel()
	if err != nil && answer != nil && answer.StatusCode == http.StatusForbidden {
		c.end = &End{Reason: frame.ReasonDenied, Message: "the gateway takes no client here without a ticket: give --ticket or --ticket-command"}
		return fmt.Errorf("dial gateway: %w", err)
	}
	if err != nil {
		return fmt.Errorf("dial gateway: %w", err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	ctx, stop := context.WithCancel(ctx)
	messages, broken := make(chan message), make(chan error, 1)
	fresh := make(chan renewal)
	var wg sync.WaitGroup
	wg.Go(func() { broken <- receive(ctx, conn, messages) })
	if c.cfg.Grant != nil {
		wg.Go(func() { c.renew(ctx, fresh) })
	}
	err = c.serve(ctx, conn, beside{messages: messages, broken: broken, fresh: fresh})
	stop()
	wg.Wait()
	return err
}

// receive passes the gateway's frames on until the socket ends.
func receive(ctx context.Context, conn *websocket.Conn, messages chan<- message) error {
	defer close(messages)
	for {
		typ, data, err := conn.Read(ctx)
		if err != nil {
			return fmt.Errorf("read from gateway: %w", err)
		}
		select {
		case messages <- message{text: typ == websocket.MessageText, data: data}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// beside is what runs beside serve.
type beside struct {
	messages <-chan message // closed when the socket has ended
	broken   <-chan error   // then says why
	fresh    <-chan renewal // never closed
}

func (c *client) serve(ctx context.Context, conn *websocket.Conn, side beside) error {
	hello := frame.Client{Type: frame.TypeHello, Page: c.cfg.Page, ClientID: c.cfg.Client, Size: c.cfg.Size(), Flow: true,
		Session: c.session, Offset: c.offset, Tail: c.tail}
	if err := send(ctx, conn, websocket.MessageText, hello.Encode()); err != nil {
		return err
	}
	for {
		if err := c.flush(ctx, conn); err != nil {
			return err
		}
		select {
		case m, ok := <-side.messages:
			if !ok {
				return <-side.broken
			}
			if err := c.take(ctx, conn, m); err != nil || c.end != nil {
				return err
			}
		case p, ok := <-c.input():
			if !c.press(p, ok) {
				return c.detach(ctx, conn)
			}
		case <-c.ending.wait:
			if c.answered && c.ending.spent() {
				err := c.detach(ctx, conn)
				c.end.Message = "the input has ended and the shell did not; it goes on"
				return err
			}
			if c.ending.again(c.answered) {
				c.typed.add([]byte{4})
			}
		case r := <-side.fresh:
			if err := c.renewed(ctx, conn, r); err != nil {
				return err
			}
		case <-c.cfg.Resized:
			size := frame.Client{Type: frame.TypeResize, Size: c.cfg.Size()}
			if err := send(ctx, conn, websocket.MessageText, size.Encode()); err != nil {
				return err
			}
		case <-ctx.Done():
			return c.detach(context.WithoutCancel(ctx), conn)
		}
	}
}

// detach says goodbye; the shell goes on.
func (c *client) detach(ctx context.Context, conn *websocket.Conn) error {
	c.end = &End{Reason: frame.ReasonDetached}
	bye := frame.Client{Type: frame.TypeDetach}
	return send(ctx, conn, websocket.MessageText, bye.Encode())
}

// flush sends what is typed, within the window.
func (c *client) flush(ctx context.Context, conn *websocket.Conn) error {
	if !c.answered {
		return nil
	}
	for p := c.typed.next(); p != nil; p = c.typed.next() {
		if err := send(ctx, conn, websocket.MessageBinary, p); err != nil {
			return err
		}
	}
	return nil
}

func send(ctx context.Context, conn *websocket.Conn, typ websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := conn.Write(ctx, typ, p); err != nil {
		return fmt.Errorf("write to gateway: %w", err)
	}
	return nil
}
