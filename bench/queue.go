package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/bench"
)

// producers is how many insert at a time.
const producers = 16

// peer is a queue to compare with.
type peer interface {
	// insert stores one no-op job.
	insert(ctx context.Context) error
	// left reports whether any job has not ended.
	left(ctx context.Context) (bool, error)
	close()
}

// compareQueues fills the table of queues, a row for each and both syncs.
func compareQueues(ctx context.Context, b *book) error {
	rates := map[string][2]float64{}
	for i, sync := range []bool{false, true} {
		for _, part := range []func(context.Context, *book, bool) (map[string]float64, error){queueWakebus, queueAsynq, queueRiver} {
			got, err := part(ctx, b, sync)
			if err != nil {
				return err
			}
			for row, rate := range got {
				both := rates[row]
				both[i] = rate
				rates[row] = both
			}
		}
	}
	base := rates["Wakebus, workers in one process"]
	for row, r := range rates {
		b.row("queue", row, f0(r[0]), ratio(r[0], base[0]), f0(r[1]), ratio(r[1], base[1]))
	}
	for _, p := range []string{"asynq", "river"} {
		r := rates[p+", workers in one process"]
		b.say("%s does %s no-op jobs for each whole job of ours without fsync, %s with it", p, ratio(r[0], base[0]), ratio(r[1], base[1]))
	}
	return nil
}

func queueWakebus(ctx context.Context, b *book, sync bool) (map[string]float64, error) {
	rates, jobs := map[string]float64{}, b.n(2000, 64)
	if sync {
		jobs = b.n(400, 64)
	}
	one := func(c *bench.Caller) (float64, error) {
		if _, err := c.Run(ctx, bench.Load{Jobs: 64, InFlight: 16, Conversations: 64}); err != nil {
			return 0, err
		}
		s, err := c.Run(ctx, bench.Load{Jobs: jobs, InFlight: 64})
		return s.PerSecond(), err
	}
	err := withCaller(ctx, bench.RigConfig{SyncAlways: sync}, func(_ *bench.Rig, c *bench.Caller) (err error) {
		rates["Wakebus, workers in one process"], err = one(c)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = withCaller(ctx, bench.RigConfig{SyncAlways: sync, Workers: -1, Slots: 16}, func(rig *bench.Rig, c *bench.Caller) (err error) {
		for range 2 {
			p, err := startWorker(ctx, b.worker, rig, 16)
			if err != nil {
				return err
			}
			defer func() { _ = p.stop() }()
		}
		rates["Wakebus, two worker processes"], err = one(c)
		return err
	})
	return rates, err
}

func queueAsynq(ctx context.Context, b *book, sync bool) (map[string]float64, error) {
	redis, err := bench.StartRedis(ctx, sync)
	if err != nil {
		return nil, err
	}
	defer func() { _ = redis.Close() }()
	opt := asynq.RedisClientOpt{Addr: redis.Addr(), PoolSize: 64}
	p := &asynqPeer{client: asynq.NewClient(opt), look: asynq.NewInspector(opt)}
	defer p.close()
	return comparePeer(ctx, b, "asynq", redis.Addr(), p, b.n(8000, 100))
}

func queueRiver(ctx context.Context, b *book, sync bool) (map[string]float64, error) {
	pg, err := startPostgres(ctx, sync)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pg.Close() }()
	p, err := newRiverPeer(ctx, pg.url)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return comparePeer(ctx, b, "river", pg.url, p, b.n(6000, 100))
}

// comparePeer runs a peer with its workers in this process, then in two others.
func comparePeer(ctx context.Context, b *book, name, url string, p peer, jobs int) (map[string]float64, error) {
	rates := map[string]float64{}
	inside, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return servePeer(inside, name, url, 32) })
	rate, err := drainPeer(ctx, p, jobs)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return nil, fmt.Errorf("%s in one process: %w", name, err)
	}
	rates[name+", workers in one process"] = rate
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var procs []*exec.Cmd
	defer func() {
		for _, c := range procs {
			_ = c.Process.Signal(os.Interrupt)
			_ = c.Wait() // nothing is asked of it any more
		}
	}()
	for range 2 {
		c := exec.CommandContext(ctx, self, "-serve", name, "-url", url, "-slots", strconv.Itoa(16))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return nil, err
		}
		procs = append(procs, c)
	}
	rate, err = drainPeer(ctx, p, jobs)
	if err != nil {
		return nil, fmt.Errorf("%s in two processes: %w", name, err)
	}
	rates[name+", two worker processes"] = rate
	return rates, nil
}

// drainPeer times jobs from the first insert to the last end; a few before tell that the workers are there.
func drainPeer(ctx context.Context, p peer, jobs int) (float64, error) {
	if err := insertAll(ctx, p, 16); err != nil {
		return 0, err
	}
	if err := untilDrained(ctx, p); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := insertAll(ctx, p, jobs); err != nil {
		return 0, err
	}
	if err := untilDrained(ctx, p); err != nil {
		return 0, err
	}
	return float64(jobs) / time.Since(began).Seconds(), nil
}

func insertAll(ctx context.Context, p peer, jobs int) error {
	g, ctx := errgroup.WithContext(ctx)
	for n := range producers {
		g.Go(func() error {
			for i := n; i < jobs; i += producers {
				if err := p.insert(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// untilDrained asks every 5 ms: neither store tells when its last job has ended.
func untilDrained(ctx context.Context, p peer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := p.left(ctx)
		if err != nil || !left {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the last job: %w", context.Cause(ctx))
		}
	}
}

// servePeer works a peer's jobs until ctx ends.
func servePeer(ctx context.Context, name, url string, slots int) error {
	switch name {
	case "asynq":
		return serveAsynq(ctx, url, slots)
	case "river":
		return serveRiver(ctx, url, slots)
	}
	return fmt.Errorf("unknown peer %q", name)
}

type asynqPeer struct {
	client *asynq.Client
	look   *asynq.Inspector
}

func (p *asynqPeer) insert(ctx context.Context) error {
	_, err := p.client.EnqueueContext(ctx, asynq.NewTask("noop", nil))
	return err
}

func (p *asynqPeer) left(context.Context) (bool, error) {
	q, err := p.look.GetQueueInfo("default")
	if err != nil {
		return false, err
	}
	return q.Size > q.Completed, nil
}

func (p *asynqPeer) close() {
	_ = p.client.Close()
	_ = p.look.Close()
}

func serveAsynq(ctx context.Context, addr string, slots int) error {
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: addr, PoolSize: 2 * slots}, asynq.Config{Concurrency: slots, LogLevel: asynq.FatalLevel, TaskCheckInterval: 100 * time.Millisecond})
	if err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

type noop struct{}

func (noop) Kind() string { return "noop" }

type noopWorker struct{ river.WorkerDefaults[noop] }

func (noopWorker) Work(context.Context, *river.Job[noop]) error { return nil }

type riverPeer struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func newRiverPeer(ctx context.Context, url string) (*riverPeer, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	p := &riverPeer{pool: pool}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		p.client, err = river.NewClient(driver, &river.Config{Logger: quiet()})
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("set river up: %w", err)
	}
	return p, nil
}

func (p *riverPeer) insert(ctx context.Context) error {
	_, err := p.client.Insert(ctx, noop{}, nil)
	return err
}

func (p *riverPeer) left(ctx context.Context) (left bool, err error) {
	err = p.pool.QueryRow(ctx, `select exists (select from river_job where state in ('available', 'running', 'retryable', 'scheduled'))`).Scan(&left)
	return left, err
}

func (p *riverPeer) close() { p.pool.Close() }

func serveRiver(ctx context.Context, url string, slots int) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, noopWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Logger: quiet(),
		FetchCooldown: time.Millisecond, // the shortest it takes: else it would wait 100 ms between fetches
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Stop(stopping)
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
}
