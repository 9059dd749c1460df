package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/bench"
)

// outputFigures are those that the aims need.
type outputFigures struct{ bare, job, smallPeak, peak float64 }

// compareOutput streams much through a job and through nothing but a WebSocket.
func compareOutput(ctx context.Context, b *book) error {
	size := int64(b.n(256<<20, 4<<20))
	bench.ForgetPeak()
	bare, err := bareWebSocket(ctx, size)
	if err != nil {
		return err
	}
	b.output.bare = bare
	b.row("output", "bare WebSocket", f0(bare), "1.00", f0(peakMiB()))
	return withCaller(ctx, bench.RigConfig{}, func(_ *bench.Rig, c *bench.Caller) error {
		if _, err := c.Throughput(ctx, 1<<20); err != nil { // its sandbox is made by this one
			return err
		}
		bench.ForgetPeak()
		small, err := c.Throughput(ctx, size/4)
		if err != nil {
			return err
		}
		b.output.smallPeak = peakMiB()
		b.row("output", "one job, a quarter of it", f0(small), ratio(small, bare), f0(b.output.smallPeak))
		bench.ForgetPeak()
		if b.output.job, err = c.Throughput(ctx, size); err != nil {
			return err
		}
		b.output.peak = peakMiB()
		b.row("output", "one job", f0(b.output.job), ratio(b.output.job, bare), f0(b.output.peak))
		b.ratios = append(b.ratios, fmt.Sprintf("output through a job comes at %s of a bare WebSocket's rate", ratio(b.output.job, bare)))
		return nil
	})
}

func peakMiB() float64 {
	_, peak, err := bench.Memory(os.Getpid())
	if err != nil {
		return 0
	}
	return float64(peak) / (1 << 20)
}

// bareWebSocket sends size bytes over loopback and returns MB/s.
func bareWebSocket(ctx context.Context, size int64) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		frame := make([]byte, 32<<10)
		for left := size; left > 0 && err == nil; left -= int64(len(frame)) {
			err = conn.Write(r.Context(), websocket.MessageBinary, frame[:min(left, int64(len(frame)))])
		}
		_ = conn.Close(websocket.StatusNormalClosure, "") // the client counts what came
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends by Close
	}()
	defer func() { _ = server.Close(); <-done }()
	conn, _, err := websocket.Dial(ctx, "ws://"+l.Addr().String(), nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.CloseNow() }()
	began, got := time.Now(), int64(0)
	for got < size {
		_, r, err := conn.Reader(ctx)
		if err != nil {
			return 0, fmt.Errorf("after %d of %d bytes: %w", got, size, err)
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			return 0, err
		}
		got += n
	}
	return float64(size) / 1e6 / time.Since(began).Seconds(), nil
}
