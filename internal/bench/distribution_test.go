package bench_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bench"
)

func TestADistributionTakesTheNearestRank(t *testing.T) {
	t.Parallel()
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration(100-i)*time.Millisecond)
	}
	want := bench.Distribution{P50: 50, P90: 90, P99: 99, Max: 100}
	if got := bench.Distribute(samples); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if samples[0] != 100*time.Millisecond {
		t.Fatal("the caller's samples were sorted")
	}
}

func TestADistributionOfNothingIsZero(t *testing.T) {
	t.Parallel()
	if got := bench.Distribute(nil); got != (bench.Distribution{}) {
		t.Fatalf("got %+v", got)
	}
}

func TestADistributionRisesAndEveryValueIsASample(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.IntRange(0, 1_000_000), 1, 300).Draw(t, "samples")
		var samples []time.Duration
		var values []float64
		for _, us := range raw {
			samples = append(samples, time.Duration(us)*time.Microsecond)
			values = append(values, float64(us)/1000)
		}
		d := bench.Distribute(samples)
		got := []float64{d.P50, d.P90, d.P99, d.Max}
		if !slices.IsSorted(got) || d.Max != slices.Max(values) {
			t.Fatalf("got %v of %v", got, values)
		}
		for _, v := range got {
			if !slices.Contains(values, v) {
				t.Fatalf("%v is no sample of %v", v, values)
			}
		}
	})
}
