package plan_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

func orphan() plan.SweepFacts {
	return plan.SweepFacts{Ours: true, ActivityKnown: true, Idle: 2 * day, HardExpiry: day, FirstSeen: time.Hour}
}

func TestASpriteIsSweptOnlyWhenEverythingSpeaksForIt(t *testing.T) {
	t.Parallel()
	if got, why := plan.Sweep(orphan()); got != plan.SweepDelete || why == "" {
		t.Fatalf("an orphan: %s", got)
	}
	for name, tt := range map[string]struct {
		change func(*plan.SweepFacts)
		want   plan.SweepVerdict
	}{
		"another deployment's":      {func(f *plan.SweepFacts) { f.Ours = false }, plan.SweepKeep},
		"in use":                    {func(f *plan.SweepFacts) { f.InUse = true }, plan.SweepKeep},
		"its activity is unknown":   {func(f *plan.SweepFacts) { f.ActivityKnown = false }, plan.SweepKeep},
		"active lately":             {func(f *plan.SweepFacts) { f.Idle = 2*day - time.Second }, plan.SweepKeep},
		"nothing expires":           {func(f *plan.SweepFacts) { f.HardExpiry, f.Idle = 0, 365*day }, plan.SweepKeep},
		"seen for the first time":   {func(f *plan.SweepFacts) { f.FirstSeen = 0 }, plan.SweepMark},
		"seen less than an hour":    {func(f *plan.SweepFacts) { f.FirstSeen = time.Hour - 1 }, plan.SweepMark},
		"an expiry a day or longer": {func(f *plan.SweepFacts) { f.HardExpiry = 3 * day }, plan.SweepKeep},
	} {
		f := orphan()
		tt.change(&f)
		if got, why := plan.Sweep(f); got != tt.want || why == "" {
			t.Errorf("%s: %s (%s)", name, got, why)
		}
	}
}

func TestASweepIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(-1, 10000).Draw(t, "total")
		if plan.SweepBudget(total, false) != 0 {
			t.Fatal("a partial listing has a budget")
		}
		got := plan.SweepBudget(total, true)
		if got > plan.SweepMost || got > max(total/20, 1) || (total <= 0 && got != 0) {
			t.Fatalf("%d of %d", got, total)
		}
	})
}
