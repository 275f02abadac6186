package main

import (
	"math"
	"slices"
)

// confidence of every interval. At 99 % one control in a hundred misses its
// ideal by chance.
const confidence = 0.99

// minBlocks is the least number of values whose extremes enclose their median
// with that confidence.
const minBlocks = 8

// interval is a median and what encloses it.
type interval struct{ mid, low, high float64 }

func (i interval) holds(x float64) bool { return i.low <= x && x <= i.high }

// medianOf takes order statistics for limits: the number of values below the
// true median is binomial with p = 1/2 whatever the values' distribution is, so
// nothing is assumed of it, and nothing is drawn at random.
func medianOf(values []float64) interval {
	n := len(values)
	if n < minBlocks {
		return interval{math.NaN(), math.Inf(-1), math.Inf(1)}
	}
	v := slices.Sorted(slices.Values(values))
	cut := outside(n)
	return interval{mid: (v[(n-1)/2] + v[n/2]) / 2, low: v[cut], high: v[n-1-cut]}
}

// outside is how many values may be left out on each side.
func outside(n int) int {
	tail, p := 0.0, math.Pow(0.5, float64(n)) // p: exactly k of n lie below the median
	for k := 0; ; k++ {
		tail += p
		if 2*tail > 1-confidence {
			return k - 1
		}
		p *= float64(n-k) / float64(k+1)
	}
}
