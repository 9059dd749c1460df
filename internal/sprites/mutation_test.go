package sprites_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// verdict is what comes of a broken protocol: the client gets the right answer all the same, says an error, or, where no
// client can know, is told from a right one by this test only.
type verdict string

const (
	tolerated verdict = "tolerated"
	refused   verdict = "refused"
	seen      verdict = "seen by the test"
)

var errWrongAnswer = errors.New("wrong answer")

// walk does what a job does, and reports errWrongAnswer for a success that is none.
func walk(ctx context.Context, c *sprites.Client) error {
	made, err := c.Provision(ctx, request())
	if err != nil {
		return err
	}
	p, err := c.Start(ctx, sprites.Command{Sprite: "box", Guard: "g", Job: "j", Shell: "echo out; echo err >&2; exit 7", HasBash: made.HasBash, Limit: time.Minute})
	if err != nil {
		return err
	}
	defer p.Close()
	stdout, stderr, err := collect(ctx, p)
	if err != io.EOF {
		return err
	}
	if exit, _ := p.Exit(); stdout != "out\n" || stderr != "err\n" || exit.Code != 7 {
		return fmt.Errorf("%w: %q, %q, %d", errWrongAnswer, stdout, stderr, exit.Code)
	}
	if list, complete, err := c.List(ctx, "box"); err != nil || !complete || len(list) != 1 || list[0].Name != "box" {
		return errors.Join(err, fmt.Errorf("listing %v, %v", list, complete))
	}
	if again, err := c.Provision(ctx, request()); err != nil || again.Fresh {
		return errors.Join(err, fmt.Errorf("provisioned twice: %+v", again))
	}
	if _, err := c.Checkpoint(ctx, "box", ""); err != nil {
		return err
	}
	return c.Delete(ctx, "box")
}

func TestABrokenProtocolNeverMakesTheClientLie(t *testing.T) {
	t.Parallel()
	want := map[emulator.Mutation]verdict{
		emulator.MutateNothing:         tolerated,
		emulator.MutateExitFourBytes:   tolerated,
		emulator.MutateSessionInfoLate: refused,
		emulator.MutateTextExitFirst:   refused, // its code is a lie; the guard's file has the true one
		emulator.MutateBufferedNDJSON:  tolerated,
		emulator.MutateMergedHTTP:      tolerated, // we do not use HTTP exec
		emulator.MutateNoExit:          refused,
		emulator.MutateListShape:       refused,
		emulator.MutateCreateStatus:    tolerated,
		emulator.MutatePolicyStatus:    tolerated,
		emulator.MutateInvalidTime:     tolerated,
		emulator.MutateNumericSession:  tolerated,
		emulator.MutateStderrAsStdout:  seen,
	}
	for _, mutation := range append(emulator.Mutations(), emulator.MutateNothing) {
		t.Run(string(mutation), func(t *testing.T) {
			t.Parallel()
			if got, err := judge(t, mutation); got != want[mutation] {
				t.Errorf("%s, want %s: %v", got, want[mutation], err)
			}
		})
	}
}

// judge walks through an emulator of its own. Nothing here attaches, so the poorer way to replay stands for both.
func judge(t *testing.T, mutation emulator.Mutation) (verdict, error) {
	t.Helper()
	emu, err := emulator.New(emulator.Config{Mutation: mutation, WarmWake: -1, ColdWake: -1, Attach: emulator.AttachMerged})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = emu.Close() })
	if err := emu.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := sprites.New(nil, sprites.Config{BaseURL: emu.URL(), Token: emu.Token()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	switch err := walk(t.Context(), c); {
	case err == nil:
		return tolerated, nil
	case errors.Is(err, errWrongAnswer):
		return seen, err
	default:
		return refused, err
	}
}

func TestObserveTellsWhatTheServiceDoes(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		o, err := b.Observe(t.Context(), "box")
		if err != nil {
			t.Fatal(err)
		}
		if !o.SessionIsPID || o.User == "" || o.WorkspaceOwner == "" || o.Written < 256<<10 || o.ReplayBytes == 0 || o.OffsetAdvertised != o.OffsetHonoured {
			t.Errorf("got %+v", o)
		}
		// The names of the modes say what is to be seen.
		if exact := strings.Contains(t.Name(), "/exact"); exact != (o.ReplayBytes == o.Written) {
			t.Errorf("got %+v", o)
		}
		if offset := strings.Contains(t.Name(), "with_offset"); offset != o.OffsetHonoured {
			t.Errorf("got %+v", o)
		}
		b.settle()
	})
}
