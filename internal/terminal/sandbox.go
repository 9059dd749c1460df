package terminal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// killGrace is how long a shell may clean up between TERM, which shells ignore, and KILL.
const killGrace = 2 * time.Second

// spriteShells opens shells on Sprites.
type spriteShells struct{ client *sprites.Client }

var _ Shells = spriteShells{}

func (s spriteShells) Wake(ctx context.Context, sandbox string) error {
	_, err := s.client.EnsureAwake(ctx, sandbox)
	return gone(err)
}

func (s spriteShells) Open(ctx context.Context, v Visitor, sandbox string, size frame.Size, keep time.Duration) (PTY, error) {
	p, err := s.client.OpenPTY(ctx, sprites.PTYRequest{Sprite: sandbox, Tenant: v.Page.Tenant, Cols: size.Cols, Rows: size.Rows,
		MaxRunAfterDisconnect: keep})
	if err != nil {
		return nil, gone(err)
	}
	return spritePTY{p}, nil
}

func (s spriteShells) Attach(ctx context.Context, sandbox string, shell Shell) (PTY, error) {
	p, err := s.client.AttachPTY(ctx, sandbox, sprites.Session{ID: shell.ID, Created: shell.Created})
	if err != nil {
		return nil, gone(err)
	}
	return spritePTY{p}, nil
}

func (s spriteShells) Kill(ctx context.Context, sandbox string, shell Shell) error {
	_, err := s.client.Stop(ctx, sandbox, sprites.Session{ID: shell.ID, Created: shell.Created}, killGrace)
	return gone(err)
}

// gone tells what does not exist from what cannot be reached.
func gone(err error) error {
	var se *sprites.Error
	if errors.As(err, &se) && se.Class == sprites.ClassNotFound {
		return fmt.Errorf("%w: %w", ErrShellGone, err)
	}
	return err
}

// spritePTY is a Sprite's terminal as a PTY.
type spritePTY struct{ *sprites.PTY }

var _ PTY = spritePTY{}

// resizeTimeout bounds one resize.
const resizeTimeout = 10 * time.Second

func (p spritePTY) Resize(size frame.Size) error {
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	return p.PTY.Resize(ctx, size.Cols, size.Rows)
}

func (p spritePTY) Exit() (int, bool) {
	e, known := p.PTY.Exit()
	return e.Code, known
}

func (p spritePTY) Shell() Shell {
	s := p.Session()
	return Shell{ID: s.ID, Created: s.Created}
}
