package attach

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// renewal is a fresh grant, or why there is none.
type renewal struct {
	grant string
	err   error
}

// renew asks for fresh grants until ctx ends. It runs beside the connection: a slow answer holds up no key.
func (c *client) renew(ctx context.Context, fresh chan<- renewal) {
	tick := time.NewTicker(c.cfg.GrantEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		grant, err := c.cfg.Grant(ctx)
		select {
		case fresh <- renewal{grant: grant, err: err}:
		case <-ctx.Done():
			return
		}
	}
}

// renewed passes a fresh grant on. Without one the old one holds until it ends, and the next may come in time.
func (c *client) renewed(ctx context.Context, conn *websocket.Conn, r renewal) error {
	if r.err != nil {
		c.cfg.Notice(fmt.Sprintf("no fresh grant: %v", r.err))
		return nil
	}
	f := frame.Client{Type: frame.TypeGrant, Grant: r.grant}
	return send(ctx, conn, websocket.MessageText, f.Encode())
}
