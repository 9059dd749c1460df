package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

const (
	// CanaryTenant is the canary's own, so that it takes nobody's slot and its grant opens nothing else.
	CanaryTenant       = "wakebus-canary"
	canaryConversation = "canary"
	canaryUser         = "wakebus-canary"
	// canaryPatience bounds one canary from publish to result: a cold wake, or a create that has to wait its turn.
	canaryPatience = 3 * time.Minute
	// canaryTimeout bounds its command.
	canaryTimeout = 30 * time.Second
)

// CanaryOutcome is how a canary ended.
type CanaryOutcome string

// The closed set of a canary's ends.
const (
	CanaryOK     CanaryOutcome = "ok"
	CanaryFailed CanaryOutcome = "failed" // it has a result, which is not exit code 0
	CanaryLate   CanaryOutcome = "late"   // there was no result in time
	CanaryUnsent CanaryOutcome = "unsent" // it could not be published
)

type canaryMetrics struct {
	seconds prometheus.Histogram
	runs    *prometheus.CounterVec
}

func newCanaryMetrics(reg prometheus.Registerer) (*canaryMetrics, error) {
	m := &canaryMetrics{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "wakebus", Subsystem: "canary", Name: "seconds",
			Help: "From publishing a canary job to reading its result, of those that ended well.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 11)}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "canary", Name: "runs_total",
			Help: "Canary jobs by how they ended."}, []string{"outcome"}),
	}
	for _, o := range []CanaryOutcome{CanaryOK, CanaryFailed, CanaryLate, CanaryUnsent} {
		m.runs.WithLabelValues(string(o)) // there from the start, so that the first failure is an increase
	}
	return m, errors.Join(reg.Register(m.seconds), reg.Register(m.runs))
}

// CanaryGrant mints the grant of one canary job.
type CanaryGrant func(job string, now time.Time, life time.Duration) (string, error)

// runCanary is the background role that runs a command as any caller would: publish, queue, authorise, lease, wake, run,
// result, reply subject. One conversation, hence one Sprite, is used again and again; when the canary is switched off the
// next leader ends that conversation.
func (w *Worker) runCanary(ctx context.Context) error {
	if w.cfg.CanaryEvery <= 0 {
		return w.endCanary(ctx)
	}
	for {
		if w.sleep(ctx, w.jitter(w.cfg.CanaryEvery)) != nil {
			return nil
		}
		began := w.now()
		outcome, err := w.CanaryOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.canary.runs.WithLabelValues(string(outcome)).Inc()
		if outcome == CanaryOK {
			w.canary.seconds.Observe(w.now().Sub(began).Seconds())
			continue
		}
		w.log.Warn().Err(err).Str("outcome", string(outcome)).Msg("a canary job did not end well")
	}
}

// CanaryOnce publishes one canary job and waits for its result, at most 3 minutes. The error says what went wrong.
func (w *Worker) CanaryOnce(ctx context.Context) (CanaryOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, canaryPatience)
	defer cancel()
	id := "canary-" + randomWord()
	deadline := w.now().Add(canaryPatience)
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: canaryConversation, Argv: []string{"true"},
		TimeoutMs: canaryTimeout.Milliseconds(), Deadline: &deadline, FreshStart: true})
	if err != nil {
		return CanaryUnsent, fmt.Errorf("write canary: %w", err)
	}
	header, err := w.canaryHeader(id)
	if err != nil {
		return CanaryUnsent, err
	}
	reader, err := w.bus.Subscribe(ctx, CanaryTenant, id)
	if err != nil {
		return CanaryUnsent, err
	}
	defer reader.Close()
	if _, err := w.bus.Publish(ctx, bus.KindExec, CanaryTenant, header, body); err != nil {
		return CanaryUnsent, err
	}
	for {
		event, err := reader.Next(ctx)
		if err != nil {
			return CanaryLate, fmt.Errorf("wait for canary %s: %w", id, err)
		}
		if event.Kind == bus.EventResult {
			return judgeCanary(id, event.Data)
		}
	}
}

func judgeCanary(id string, data []byte) (CanaryOutcome, error) {
	var result bus.ResultBody
	if err := json.Unmarshal(data, &result); err != nil {
		return CanaryFailed, fmt.Errorf("read the result of canary %s: %w", id, err)
	}
	if result.Outcome != plan.OutcomeExited || result.ExitCode == nil || *result.ExitCode != 0 {
		return CanaryFailed, fmt.Errorf("canary %s ended as %s %s", id, result.Outcome, result.Reason)
	}
	return CanaryOK, nil
}

func (w *Worker) canaryHeader(id string) (bus.Header, error) {
	header := bus.Header{}
	if w.canaryGrant == nil {
		return header, nil // dev mode needs none
	}
	grant, err := w.canaryGrant(id, w.now(), 2*canaryPatience)
	if err != nil {
		return nil, fmt.Errorf("mint the canary's grant: %w", err)
	}
	header.Set(bus.HeaderGrant, grant)
	return header, nil
}

// endCanary tears down what an earlier setting has left, once, and holds the role so that nobody looks again and again.
func (w *Worker) endCanary(ctx context.Context) error {
	snap, err := w.links.Load(ctx, session.Key{Kind: plan.KindConversation, Tenant: CanaryTenant, ID: canaryConversation})
	if err != nil {
		return fmt.Errorf("look for a canary's sandbox: %w", err)
	}
	if state := snap.State(); state == plan.LinkLive || state == plan.LinkCreating {
		id := "canary-end-" + randomWord()
		header, err := w.canaryHeader("")
		if err != nil {
			return err
		}
		body, err := json.Marshal(bus.EndRequest{V: 1, JobID: id, ConversationID: canaryConversation})
		if err != nil {
			return fmt.Errorf("write the canary's end: %w", err)
		}
		if _, err := w.bus.Publish(ctx, bus.KindEnd, CanaryTenant, header, body); err != nil {
			return fmt.Errorf("end the canary's session: %w", err)
		}
		w.log.Info().Str("sandbox", snap.Link.Sandbox).Msg("the canary is off, and its sandbox is torn down")
	}
	<-ctx.Done()
	return nil
}
