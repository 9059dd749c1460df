package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// Park stores a run's request until a time, and returns once the broker has it; then the original may be acked. A run is
// parked once: parking it again replaces the first. hdr is kept, see Delivery.ParkHeader; the broker's own headers in it
// are dropped. A time that has passed delivers at once. Errors as Publish; parking again after one is safe.
func (b *Bus) Park(ctx context.Context, key RunKey, kind Kind, at time.Time, hdr Header, data []byte) error {
	return b.park(ctx, key, kind, at, hdr, data)
}

func (b *Bus) park(ctx context.Context, key RunKey, kind Kind, at time.Time, hdr Header, data []byte, opts ...jetstream.PublishOpt) error {
	if !key.Valid() || !kind.Valid() {
		return fmt.Errorf("park: %w: run %q, kind %q", ErrInvalid, key, kind)
	}
	msg := nats.NewMsg(key.RetryAtSubject())
	h := hdr.withoutBroker()
	h.Set(HeaderJob, key.Job)
	h.Set(HeaderRun, strconv.Itoa(key.Run))
	// Set by hand, because the client library cuts the time to whole seconds, which is up to a second early.
	h.Set(headerNatsSchedule, "@at "+at.UTC().Format(time.RFC3339Nano))
	h.Set(headerNatsSchedTo, SubjectRetryDue+"."+string(kind)+"."+key.Tenant)
	msg.Header, msg.Data = nats.Header(h), data
	err := retry.Do(ctx, retry.WithMaxRetries(2, patience()), func(ctx context.Context) error {
		tctx, cancel := b.try(ctx)
		defer cancel()
		_, err := b.js.PublishMsg(tctx, msg, append(opts, jetstream.WithRetryAttempts(1))...)
		if isAmbiguous(err) {
			return retry.RetryableError(classify(err))
		}
		return classify(err)
	})
	if err != nil {
		return fmt.Errorf("park run %s: %w", key, err)
	}
	return nil
}

// ParkDelivery parks a delivery under its run's key with everything that keeps its identity. It does not ack it.
func (b *Bus) ParkDelivery(ctx context.Context, d *Delivery, key RunKey, at time.Time) error {
	return b.Park(ctx, key, d.Kind, at, d.ParkHeader(), d.Data)
}

// ParkedRun is a run that waits for its time.
type ParkedRun struct {
	Key    RunKey
	Kind   Kind
	At     time.Time // when it is due
	Header Header
	Data   []byte
}

// ParkedShow reads what is parked for a run; false when nothing is.
func (b *Bus) ParkedShow(ctx context.Context, key RunKey) (*ParkedRun, bool, error) {
	if !key.Valid() {
		return nil, false, fmt.Errorf("read the parked run: %w: run %q", ErrInvalid, key)
	}
	msg, err := b.lastOn(ctx, StreamRetry, key.RetryAtSubject())
	if errors.Is(err, errNoMessage) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the parked run %s: %w", key, err)
	}
	p := &ParkedRun{Key: key, Header: msg.Header.withoutBroker(), Data: msg.Data}
	var kind string
	if _, err := fmt.Sscanf(msg.Header.Get(headerNatsSchedTo), SubjectRetryDue+".%s", &kind); err == nil {
		p.Kind = Kind(kind[:max(0, len(kind)-len("."+key.Tenant))])
	}
	if at := msg.Header.Get(headerNatsSchedule); len(at) > len("@at ") {
		p.At, _ = time.Parse(time.RFC3339Nano, at[len("@at "):]) // a time that cannot be read shows as zero
	}
	if !p.Kind.Valid() {
		return nil, false, fmt.Errorf("read the parked run %s: %w: kind %q", key, ErrInvalid, p.Kind)
	}
	return p, true, nil
}

// Wake makes a parked run due now; false when it is not parked. A run that falls due at the same moment may be delivered
// twice, which the journal answers.
func (b *Bus) Wake(ctx context.Context, key RunKey) (bool, error) {
	p, ok, err := b.ParkedShow(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	if err := b.Park(ctx, key, p.Kind, b.now(), p.Header, p.Data); err != nil {
		return false, err
	}
	return true, nil
}

// Unpark takes a parked run away; false when it was not parked. Whoever does so answers for the run.
func (b *Bus) Unpark(ctx context.Context, key RunKey) (bool, error) {
	_, ok, err := b.ParkedShow(ctx, key)
	if err != nil || !ok {
		return false, err
	}
	tctx, cancel := b.try(ctx)
	defer cancel()
	stream, err := b.js.Stream(tctx, StreamRetry)
	if err == nil {
		err = stream.Purge(tctx, jetstream.WithPurgeSubject(key.RetryAtSubject()))
	}
	if err != nil {
		return false, fmt.Errorf("unpark run %s: %w", key, classify(err))
	}
	return true, nil
}

// Parked counts a tenant's parked runs. Whoever parks for a limit refuses above the tenant's cap: the stream itself has
// none.
func (b *Bus) Parked(ctx context.Context, tenant string) (int, error) {
	if !plan.ValidToken(tenant) {
		return 0, fmt.Errorf("count parked runs: %w: tenant %q", ErrInvalid, tenant)
	}
	counts, err := b.subjectCounts(ctx, StreamRetry, SubjectRetryAt+"."+tenant+".>")
	if err != nil {
		return 0, fmt.Errorf("count parked runs of %s: %w", tenant, err)
	}
	return len(counts), nil
}

func (b *Bus) subjectCounts(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	tctx, cancel := b.try(ctx)
	defer cancel()
	s, err := b.js.Stream(tctx, stream)
	if err != nil {
		return nil, classify(err)
	}
	info, err := s.Info(tctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, classify(err)
	}
	return info.State.Subjects, nil
}
