package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/bench"
)

// outputFigures are those that the aims need.
type outputFigures struct{ Bare, Job, SmallPeak, Peak float64 }

// outputRounds is how often each is measured, in turn; the median of them stands.
const outputRounds = 3

// compareOutput streams much through a job and, from the same emulator, through nothing but a WebSocket.
func compareOutput(ctx context.Context, b *book) error {
	size := int64(b.n(256<<20, 8<<20))
	return withCaller(ctx, bench.RigConfig{}, func(rig *bench.Rig, c *bench.Caller) error {
		t := rig.Target()
		box, err := bench.NewDirect(ctx, t.SpritesURL, t.SpritesToken, "box", "o")
		if err != nil {
			return err
		}
		defer func() { _ = box.Close(ctx) }()               // the emulator is thrown away as well
		if _, err := c.Throughput(ctx, 1<<20); err != nil { // its sandbox is made by this one
			return err
		}
		bench.ForgetPeak()
		small, err := c.Throughput(ctx, size/4)
		if err != nil {
			return err
		}
		b.Output.SmallPeak = peakMiB()
		bench.ForgetPeak()
		var bare, client, job []float64
		for range outputRounds {
			if err := errors.Join(
				note(&bare)(bareWebSocket(ctx, t, size)),
				note(&client)(clientAlone(ctx, box, size)),
				note(&job)(c.Throughput(ctx, size))); err != nil {
				return err
			}
		}
		b.Output.Peak = peakMiB()
		b.Output.Bare, b.Output.Job = middle(bare), middle(job)
		b.row("output", "bare WebSocket", f0(b.Output.Bare), "1.00", "")
		b.row("output", "our client alone", f0(middle(client)), ratio(middle(client), b.Output.Bare), "")
		b.row("output", "one job, a quarter of it", f0(small), ratio(small, b.Output.Bare), f0(b.Output.SmallPeak))
		b.row("output", "one job", f0(b.Output.Job), ratio(b.Output.Job, b.Output.Bare), f0(b.Output.Peak))
		b.say("output through a job comes at %s of a bare WebSocket's rate", ratio(b.Output.Job, b.Output.Bare))
		return nil
	})
}

// note appends a figure that came without an error.
func note(to *[]float64) func(float64, error) error {
	return func(v float64, err error) error {
		if err == nil {
			*to = append(*to, v)
		}
		return err
	}
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func peakMiB() float64 {
	_, peak, err := bench.Memory(os.Getpid())
	if err != nil {
		return 0
	}
	return float64(peak) / (1 << 20)
}

// clientAlone reads the same through our client, without a job around it.
func clientAlone(ctx context.Context, box *bench.Direct, size int64) (float64, error) {
	took, got, err := box.Exec(ctx, "head", "-c", strconv.FormatInt(size, 10), "/dev/zero")
	if err == nil && got != size {
		err = fmt.Errorf("%d of %d bytes came through the client", got, size)
	}
	return float64(size) / 1e6 / took.Seconds(), err
}

// bareWebSocket has the emulator print size bytes into a WebSocket, as it does for a job, throws them away, and returns
// MB/s from the first frame to the last byte.
func bareWebSocket(ctx context.Context, t bench.Target, size int64) (float64, error) {
	query := url.Values{"cmd": {"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}, "path": {"head"}, "stdin": {"false"}}
	address := strings.Replace(t.SpritesURL, "http", "ws", 1) + "/v1/sprites/box/exec?" + query.Encode()
	conn, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + t.SpritesToken}}})
	if err != nil {
		return 0, fmt.Errorf("dial the emulator: %w", err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	var began time.Time
	for got := int64(0); got < size; {
		kind, r, err := conn.Reader(ctx)
		if err != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", got, size, err)
		}
		if began.IsZero() {
			began = time.Now()
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			return 0, err
		}
		if kind == websocket.MessageBinary {
			got += n - 1 // the first byte is the stream
		}
	}
	return float64(size) / 1e6 / time.Since(began).Seconds(), nil
}
