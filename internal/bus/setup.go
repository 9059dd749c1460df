package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Setup creates every stream, consumer and bucket that is missing, brings settings that differ to the configuration,
// and verifies the outcome. It changes nothing when all is as configured, and then needs the right to read only.
// Several processes may run it at once. What cannot be changed on a living stream is reported as *DriftError, all
// of it at once; the first other error ends it: *NotSetUpError where this user may not make what is missing,
// ErrUnreachable and ErrUnauthorized. It blocks until done or ctx ends.
func (b *Bus) Setup(ctx context.Context) error {
	var errs []error
	for _, cfg := range b.cfg.streamConfigs() {
		err := b.setupStream(ctx, cfg)
		if hopeless(err) {
			return fmt.Errorf("set up the bus: %w", err)
		}
		errs = append(errs, err)
	}
	errs = append(errs, b.setupLinks(ctx))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set up the bus: %w", err)
	}
	if err := b.setupConsumers(ctx); err != nil {
		return fmt.Errorf("set up the bus: %w", err)
	}
	return nil
}

// hopeless reports whether an error would befall the next object just as well, after as long a wait.
func hopeless(err error) bool {
	return errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNotSetUp) || errors.Is(err, ErrClosed)
}

// Verify reports everything that is missing (ErrNotSetUp) or configured otherwise (*DriftError), and changes nothing. It
// ends at the first ErrUnreachable or ErrUnauthorized.
func (b *Bus) Verify(ctx context.Context) error {
	var errs []error
	for _, want := range b.cfg.streamConfigs() {
		have, err := b.streamConfig(ctx, want.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read stream %s: %w", want.Name, err))
			if !errors.Is(err, ErrNotSetUp) {
				return errors.Join(errs...)
			}
			continue
		}
		errs = append(errs, asErrors(streamDrift(want, *have))...)
	}
	have, err := b.streamConfig(ctx, linksStream)
	if err != nil {
		errs = append(errs, fmt.Errorf("read bucket %s: %w", BucketLinks, err))
	} else {
		errs = append(errs, asErrors(linksDrift(b.cfg.linksBucket(), *have))...)
	}
	for _, kind := range Kinds() {
		for _, src := range queueSources(kind) {
			errs = append(errs, b.verifyConsumer(ctx, src))
		}
	}
	return errors.Join(errs...)
}

// admin bounds one call of the set-up, which has the broker make files and is slower than any publish. It ends at once
// where the broker forbids it.
func (b *Bus) admin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, max(b.cfg.PublishTimeout, 10*time.Second))
	ctx, leave := b.permission.until(ctx)
	return ctx, func() { leave(); cancel() }
}

// made gives the error of a call that makes or changes an object.
func made(ctx context.Context, object string, err error) error {
	if err = answered(ctx, err); errors.Is(err, ErrUnauthorized) {
		return &NotSetUpError{Object: object}
	}
	return err
}

func (b *Bus) streamConfig(ctx context.Context, name string) (*jetstream.StreamConfig, error) {
	tctx, cancel := b.admin(ctx)
	defer cancel()
	stream, err := b.js.Stream(tctx, name)
	if err != nil {
		return nil, answered(tctx, err)
	}
	cfg := stream.CachedInfo().Config
	return &cfg, nil
}

func (b *Bus) setupStream(ctx context.Context, want jetstream.StreamConfig) error {
	have, err := b.streamConfig(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		have, err = b.createStream(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	if len(streamDrift(want, *have)) == 0 {
		return nil
	}
	if fixed := fixedDrift(want, *have); len(fixed) > 0 {
		return errors.Join(asErrors(fixed)...)
	}
	// What an operator may have chosen beside our settings stays.
	want.Placement, want.Metadata, want.Compression = have.Placement, withMonitor(want.Metadata, have.Metadata), have.Compression
	tctx, cancel := b.admin(ctx)
	defer cancel()
	stream, err := b.js.UpdateStream(tctx, want)
	if err != nil {
		return fmt.Errorf("update stream %s: %w", want.Name, made(tctx, "stream "+want.Name, err))
	}
	b.log.Info().Str("stream", want.Name).Msg("stream brought to the configuration")
	return errors.Join(asErrors(streamDrift(want, stream.CachedInfo().Config))...)
}

// createStream may lose a race against another process, which then has created the same.
func (b *Bus) createStream(ctx context.Context, want jetstream.StreamConfig) (*jetstream.StreamConfig, error) {
	tctx, cancel := b.admin(ctx)
	defer cancel()
	stream, err := b.js.CreateStream(tctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return b.streamConfig(ctx, want.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("create: %w", made(tctx, "stream "+want.Name, err))
	}
	cfg := stream.CachedInfo().Config
	return &cfg, nil
}

func (b *Bus) setupLinks(ctx context.Context) error {
	want := b.cfg.linksBucket()
	have, err := b.streamConfig(ctx, linksStream)
	switch {
	case err == nil && len(linksDrift(want, *have)) == 0:
		return nil
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("bucket %s: %w", BucketLinks, err)
	}
	tctx, cancel := b.admin(ctx)
	defer cancel()
	if _, err := b.js.CreateOrUpdateKeyValue(tctx, want); err != nil {
		return fmt.Errorf("create bucket %s: %w", BucketLinks, made(tctx, "bucket "+BucketLinks, err))
	}
	return nil
}

func (b *Bus) setupConsumers(ctx context.Context) error {
	var errs []error
	for _, kind := range Kinds() {
		for _, src := range queueSources(kind) {
			if _, err := b.setupConsumer(ctx, src); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// setupConsumer binds to a consumer that is as configured, else creates or updates it.
func (b *Bus) setupConsumer(ctx context.Context, src queueSource) (jetstream.Consumer, error) {
	tctx, cancel := b.admin(ctx)
	defer cancel()
	want := b.cfg.consumerConfig(src)
	cons, err := b.js.Consumer(tctx, src.stream, src.consumer)
	if err == nil && len(consumerDrift(src, want, cons.CachedInfo().Config)) == 0 {
		return cons, nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrConsumerDoesNotExist) {
		return nil, fmt.Errorf("read consumer %s of %s: %w", src.consumer, src.stream, answered(tctx, err))
	}
	cons, err = b.js.CreateOrUpdateConsumer(tctx, src.stream, want)
	if err != nil {
		return nil, fmt.Errorf("create consumer %s of %s: %w", src.consumer, src.stream, made(tctx, "consumer "+src.consumer+" of "+src.stream, err))
	}
	if drift := consumerDrift(src, want, cons.CachedInfo().Config); len(drift) > 0 {
		return nil, errors.Join(asErrors(drift)...)
	}
	return cons, nil
}

func (b *Bus) verifyConsumer(ctx context.Context, src queueSource) error {
	tctx, cancel := b.admin(ctx)
	defer cancel()
	cons, err := b.js.Consumer(tctx, src.stream, src.consumer)
	if err != nil {
		return fmt.Errorf("read consumer %s of %s: %w", src.consumer, src.stream, answered(tctx, err))
	}
	return errors.Join(asErrors(consumerDrift(src, b.cfg.consumerConfig(src), cons.CachedInfo().Config))...)
}

type driftList struct {
	object string
	found  []*DriftError
}

func (d *driftList) check(field string, want, have any) {
	if !reflect.DeepEqual(want, have) {
		d.found = append(d.found, &DriftError{Object: d.object, Field: field, Want: fmt.Sprint(want), Have: fmt.Sprint(have)})
	}
}

// fixedDrift is what the broker does not change on a living stream.
func fixedDrift(want, have jetstream.StreamConfig) []*DriftError {
	d := &driftList{object: "stream " + want.Name}
	d.check("Retention", want.Retention, have.Retention)
	d.check("Storage", want.Storage, have.Storage)
	if have.AllowMsgSchedules && !want.AllowMsgSchedules {
		d.check("AllowMsgSchedules", want.AllowMsgSchedules, have.AllowMsgSchedules)
	}
	return d.found
}

func streamDrift(want, have jetstream.StreamConfig) []*DriftError {
	d := &driftList{object: "stream " + want.Name, found: fixedDrift(want, have)}
	d.check("Subjects", sorted(want.Subjects), sorted(have.Subjects))
	d.check("Discard", want.Discard, have.Discard)
	d.check("DiscardNewPerSubject", want.DiscardNewPerSubject, have.DiscardNewPerSubject)
	d.check("MaxMsgs", unlimited(want.MaxMsgs), unlimited(have.MaxMsgs))
	d.check("MaxBytes", unlimited(want.MaxBytes), unlimited(have.MaxBytes))
	d.check("MaxMsgsPerSubject", unlimited(want.MaxMsgsPerSubject), unlimited(have.MaxMsgsPerSubject))
	d.check("MaxMsgSize", unlimited(int64(want.MaxMsgSize)), unlimited(int64(have.MaxMsgSize)))
	d.check("MaxAge", want.MaxAge, have.MaxAge)
	d.check("Replicas", want.Replicas, have.Replicas)
	d.check("Duplicates", want.Duplicates, have.Duplicates)
	d.check("AllowMsgSchedules", want.AllowMsgSchedules, have.AllowMsgSchedules)
	d.check("AllowMsgTTL", want.AllowMsgTTL, have.AllowMsgTTL)
	d.check("AllowDirect", want.AllowDirect, have.AllowDirect)
	d.check("SubjectTransform", flat(want.SubjectTransform), flat(have.SubjectTransform))
	d.check("RePublish", flat(want.RePublish), flat(have.RePublish))
	return d.found
}

func linksDrift(want jetstream.KeyValueConfig, have jetstream.StreamConfig) []*DriftError {
	d := &driftList{object: "bucket " + want.Bucket}
	d.check("MaxBytes", want.MaxBytes, have.MaxBytes)
	d.check("History", int64(want.History), have.MaxMsgsPerSubject)
	d.check("MaxValueSize", want.MaxValueSize, have.MaxMsgSize)
	d.check("Replicas", want.Replicas, have.Replicas)
	d.check("LimitMarkerTTL", want.LimitMarkerTTL, have.SubjectDeleteMarkerTTL)
	return d.found
}

func consumerDrift(src queueSource, want, have jetstream.ConsumerConfig) []*DriftError {
	d := &driftList{object: "consumer " + src.consumer + " of " + src.stream}
	d.check("AckPolicy", want.AckPolicy, have.AckPolicy)
	d.check("AckWait", want.AckWait, have.AckWait)
	d.check("MaxDeliver", want.MaxDeliver, have.MaxDeliver)
	d.check("BackOff", len(want.BackOff), len(have.BackOff))
	d.check("MaxAckPending", want.MaxAckPending, have.MaxAckPending)
	d.check("MaxWaiting", want.MaxWaiting, have.MaxWaiting)
	d.check("FilterSubjects", filters(want), filters(have))
	return d.found
}

func filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return sorted(c.FilterSubjects)
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return out
}

// unlimited makes the two spellings of no limit one: the server answers -1 where 0 was asked.
func unlimited(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

func flat[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *p)
}

func asErrors(drift []*DriftError) []error {
	errs := make([]error, len(drift))
	for i, d := range drift {
		errs[i] = d
	}
	return errs
}
