package bus

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// AuditSink writes audit records to the stream SANDBOX_AUDIT.
type AuditSink struct{ bus *Bus }

// AuditSink is where audit records go.
func (b *Bus) AuditSink() *AuditSink { return &AuditSink{bus: b} }

// Write stores one record under sandbox.audit.<tenant>.<kind>.<id>; an id is one or more subject tokens joined by dots.
// With once a record that is there already stays, and that is no error: so it may be repeated after a crash. It blocks
// until stored, at most three tries, and may be called concurrently. Errors: ErrInvalid, ErrUnreachable, ErrTooLarge.
func (s *AuditSink) Write(ctx context.Context, tenant, kind, id string, record []byte, once bool) error {
	for _, token := range append([]string{tenant, kind}, strings.Split(id, ".")...) {
		if !plan.ValidToken(token) {
			return fmt.Errorf("write audit record: %w: tenant, kind and id must be subject tokens", ErrInvalid)
		}
	}
	msg := nats.NewMsg(SubjectAudit + "." + tenant + "." + kind + "." + id)
	msg.Data = record
	opts := []jetstream.PublishOpt{jetstream.WithRetryAttempts(1)}
	if once {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(0))
	}
	err := retry.Do(ctx, retry.WithMaxRetries(controlTries-1, patience()), func(ctx context.Context) error {
		tctx, cancel := s.bus.try(ctx)
		defer cancel()
		_, err := s.bus.js.PublishMsg(tctx, msg, opts...)
		switch {
		case err == nil, once && isConflict(err):
			return nil
		case isAmbiguous(err):
			return retry.RetryableError(classify(err))
		}
		return classify(err)
	})
	if err != nil {
		return fmt.Errorf("write audit record %s: %w", msg.Subject, err)
	}
	return nil
}
