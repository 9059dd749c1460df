package bench

import (
	"math"
	"slices"
	"time"
)

// Distribution is how samples spread, in milliseconds. Of no samples it is all zero.
type Distribution struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Distribute sorts the samples and takes the nearest rank of each share.
func Distribute(samples []time.Duration) Distribution {
	if len(samples) == 0 {
		return Distribution{}
	}
	s := slices.Clone(samples)
	slices.Sort(s)
	at := func(share float64) float64 {
		rank := int(math.Ceil(share*float64(len(s)))) - 1
		return ms(s[min(max(rank, 0), len(s)-1)])
	}
	return Distribution{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// ms is a duration in milliseconds to three places: what is finer is noise.
func ms(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Microsecond)) / 1000 }
