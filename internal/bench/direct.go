package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

// Direct runs commands straight through the Sprites client, without anything of Wakebus around it. It is not safe for
// concurrent use.
type Direct struct {
	client *sprites.Client
	sprite string
	// word makes the guards' names new.
	word string
	runs int
}

// NewDirect makes a Sprite of that name ready. Close it.
func NewDirect(ctx context.Context, url, token, sprite, word string) (*Direct, error) {
	client, err := sprites.New(nil, sprites.Config{BaseURL: url, Token: token})
	if err != nil {
		return nil, err
	}
	d := &Direct{client: client, sprite: sprite, word: word}
	if _, err := client.Provision(ctx, sprites.ProvisionRequest{Name: sprite, Tenant: "bench", Create: true}); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return d, nil
}

// Exec runs one command to its end and counts its output.
func (d *Direct) Exec(ctx context.Context, argv ...string) (took time.Duration, bytes int64, err error) {
	began := time.Now()
	err = d.run(ctx, argv, func(data []byte) { bytes += int64(len(data)) })
	return time.Since(began), bytes, err
}

// Hear runs one command to its end, and gives the beginning of its output and when that came.
func (d *Direct) Hear(ctx context.Context, argv ...string) (text []byte, at time.Time, err error) {
	err = d.run(ctx, argv, func(data []byte) {
		if at.IsZero() {
			at, text = time.Now(), append([]byte(nil), data[:min(len(data), textMost)]...)
		}
	})
	return text, at, err
}

func (d *Direct) run(ctx context.Context, argv []string, hear func([]byte)) error {
	d.runs++
	p, err := d.client.Start(ctx, sprites.Command{
		Sprite: d.sprite, Tenant: "bench", Guard: "bench." + d.word + "." + strconv.Itoa(d.runs), Job: "bench", Argv: argv, Limit: 5 * time.Minute,
	})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it has ended, or an error says more
	for {
		chunk, err := p.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read direct exec: %w", err)
		}
		hear(chunk.Data)
	}
}

// Close deletes the Sprite and drops the connections.
func (d *Direct) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(d.client.Delete(ctx, d.sprite), d.client.Close())
}
