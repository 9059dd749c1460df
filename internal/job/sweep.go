package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	sweepEvery = time.Hour
	// sweepAgain is the least time between the two sweeps that must both find a Sprite unused.
	sweepAgain = time.Hour
	// sweepMargin is how much longer than the hard expiry an unlinked Sprite must have been quiet.
	sweepMargin = 24 * time.Hour
	// sweepMost and sweepShare bound one sweep; more candidates than that stop it, because something else is wrong.
	sweepMost  = 20
	sweepShare = 20 // one in so many, that is 5 %
	// labelPrefix is reserved: labels are permissions at the provider, so ours never come from a request.
	labelPrefix = "wakebus-"
)

// ErrSweepStopped says that the sweep found more to delete than it may, or could not see everything, and deleted nothing more.
var ErrSweepStopped = errors.New("the sweep stopped")

// labels mark a Sprite as this deployment's.
func (w *Worker) labels() []string { return []string{DeploymentLabel(w.cfg.DeploymentID)} }

// DeploymentLabel is the label which marks a deployment's Sprites.
func DeploymentLabel(id string) string { return labelPrefix + "deployment-" + id }

// Verdict is what a sweep says of one Sprite.
type Verdict string

// The closed set of verdicts.
const (
	VerdictForeign Verdict = "foreign" // another deployment's, or nobody's
	VerdictLinked  Verdict = "linked"  // a session's link names it
	VerdictBusy    Verdict = "busy"    // a lease names it
	VerdictRecent  Verdict = "recent"  // the provider saw it active too lately
	VerdictOnce    Verdict = "once"    // unused, but seen so only now
	VerdictOrphan  Verdict = "orphan"  // unused in two sweeps: to be deleted
	VerdictDeleted Verdict = "deleted"
	VerdictFailed  Verdict = "failed"
)

// Swept is one Sprite's verdict.
type Swept struct {
	Sandbox    string    `json:"sandbox"`
	Verdict    Verdict   `json:"verdict"`
	LastActive time.Time `json:"last_active,omitzero"`
	FirstSeen  time.Time `json:"first_seen,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// Sweeper finds Sprites that no session has any more. It remembers what it saw in earlier sweeps; methods may be called
// concurrently.
type Sweeper struct {
	w  *Worker
	mu sync.Mutex // one sweep at a time; protects seen
	// seen is when an unused Sprite (by name and instance) was first found so.
	seen map[string]time.Time
}

// NewSweeper makes a sweeper over a worker's connections.
func (w *Worker) NewSweeper() *Sweeper { return &Sweeper{w: w, seen: map[string]time.Time{}} }

// sweepSprites is the background role.
func (w *Worker) sweepSprites(ctx context.Context) error {
	s := w.NewSweeper()
	for {
		if w.sleep(ctx, w.jitter(sweepEvery)) != nil {
			return nil
		}
		report, err := s.Sweep(ctx, false)
		for _, one := range report {
			w.met.swept.WithLabelValues(string(one.Verdict)).Inc()
		}
		if err != nil {
			w.log.Error().Err(err).Msg("sweep")
		}
	}
}

// Sweep judges every Sprite of this deployment and, unless dry, deletes the orphans. No missing link alone ever
// deletes: a Sprite goes only when its label is this deployment's, no link and no lease names it, the provider's own
// last activity is older than hard expiry + 24 h, and two sweeps an hour or more apart found it so. A listing that is
// not complete deletes nothing; more candidates than 5 % or 20 stop the sweep. The report is valid with an error too.
func (s *Sweeper) Sweep(ctx context.Context, dry bool) ([]Swept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.w
	all, complete, err := w.sprites.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list sprites: %w", err)
	}
	used, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	report, orphans := s.judge(all, used)
	switch {
	case !complete:
		return report, fmt.Errorf("%w: the provider's listing is not complete", ErrSweepStopped)
	case w.cfg.HardExpiry == 0:
		return report, nil // never expires holds here too
	case len(orphans) > min(sweepMost, max(1, len(all)/sweepShare)):
		return report, fmt.Errorf("%w: %d of %d sprites look unused; look at them before deleting any", ErrSweepStopped, len(orphans), len(all))
	case dry:
		return report, nil
	}
	return report, s.delete(ctx, report, orphans)
}

// used are the names that a link or a lease has.
func (s *Sweeper) used(ctx context.Context) (map[string]Verdict, error) {
	used := map[string]Verdict{}
	err := s.w.links.Walk(ctx, s.w.keys, "", func(snap session.Snapshot, err error) error {
		if err != nil {
			return err // a link that cannot be read may name any Sprite
		}
		if snap.Link.Sandbox != "" {
			used[snap.Link.Sandbox] = VerdictLinked
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read session links: %w", err)
	}
	held, err := s.w.leases.List(ctx, leaseFilter{})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	for _, l := range held {
		if l.Sandbox != "" {
			used[l.Sandbox] = VerdictBusy
		}
	}
	return used, nil
}

func (s *Sweeper) judge(all []sprites.Sprite, used map[string]Verdict) (report []Swept, orphans []int) {
	now, label := s.w.now(), DeploymentLabel(s.w.cfg.DeploymentID)
	seen := map[string]time.Time{}
	for _, sp := range all {
		one := Swept{Sandbox: sp.Name, LastActive: sp.LastActive, Verdict: VerdictOnce}
		quietSince := sp.LastActive
		if quietSince.IsZero() {
			quietSince = sp.CreatedAt
		}
		switch {
		case !slices.Contains(sp.Labels, label):
			one.Verdict = VerdictForeign
		case used[sp.Name] != "":
			one.Verdict = used[sp.Name]
		case quietSince.IsZero() || now.Sub(quietSince) < s.w.cfg.HardExpiry+sweepMargin:
			one.Verdict = VerdictRecent
		default:
			id := sp.Name + "\x00" + sp.Instance
			first, ok := s.seen[id]
			if !ok {
				first = now
			}
			seen[id], one.FirstSeen = first, first
			if ok && now.Sub(first) >= sweepAgain {
				one.Verdict = VerdictOrphan
				orphans = append(orphans, len(report))
			}
		}
		report = append(report, one)
	}
	s.seen = seen
	return report, orphans
}

// delete deletes the orphans, looking again right before each.
func (s *Sweeper) delete(ctx context.Context, report []Swept, orphans []int) error {
	var errs []error
	for _, i := range orphans {
		one := &report[i]
		used, err := s.used(ctx)
		if err == nil && used[one.Sandbox] != "" {
			one.Verdict = used[one.Sandbox]
			continue
		}
		if err == nil {
			err = s.w.deleteSprite(ctx, one.Sandbox, gonePatience)
		}
		if err != nil {
			one.Verdict, one.Error = VerdictFailed, string(sprites.ClassOf(err))
			errs = append(errs, fmt.Errorf("delete %s: %w", one.Sandbox, err))
			continue
		}
		one.Verdict = VerdictDeleted
		s.w.log.Warn().Str("sandbox", one.Sandbox).Msg("an unused sandbox was deleted")
	}
	return errors.Join(errs...)
}

// runOfLease is the run that a lease id belongs to.
func runOfLease(id string) (key runKey, ok bool) {
	parts := strings.Split(id, ".")
	if len(parts) != 4 || !plan.ValidToken(parts[0]) || !plan.ValidToken(parts[1]) {
		return key, false
	}
	return parseRun(parts[0], parts[1], parts[2])
}
