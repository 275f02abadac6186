// Package backoff says how long to wait after a failure. It keeps no state, so
// a number of failures that was read from a row gives the same wait as one that
// was counted here.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// Schedule is a wait that grows. Its fields are all set.
type Schedule struct {
	Min    time.Duration // after the first failure
	Max    time.Duration // never more
	Factor float64       // from one failure to the next
	Jitter float64       // 0.2 spreads by ±20 %; 0 or less does not spread
}

// After is the wait after so many failures, 1 or more.
func (s Schedule) After(failures int) time.Duration {
	d := float64(s.Min) * math.Pow(s.Factor, float64(failures-1))
	if s.Jitter > 0 {
		d *= 1 - s.Jitter + 2*s.Jitter*rand.Float64() //nolint:gosec // spreads load, guards nothing
	}
	return time.Duration(min(d, float64(s.Max)))
}
