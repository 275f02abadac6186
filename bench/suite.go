package main

import (
	"context"
	"fmt"
	"math"
)

// benchmark compares ours with its peer.
type benchmark struct {
	name string
	parts
	measure
	aim float64 // NaN: none
}

// parts are what is compared, by name. Of several the worst is the result.
type parts []part

type part struct {
	name  string
	local bool // needs no services
	sides func(context.Context, *world, options) (*trio, error)
}

// measure says what is compared in a block, and what the control must show.
type measure struct {
	score func(ours, peer sample) float64
	ideal float64 // of the peer against itself
	width float64 // the widest interval of the control that still says something
	least bool    // the aim is the least, not the most
}

var (
	ratio = measure{
		score: func(ours, peer sample) float64 { return ours.rate() / peer.rate() },
		ideal: 1, width: 0.06, least: true,
	}
	added = measure{
		score: func(ours, peer sample) float64 { return ours.allocs() - peer.allocs() },
		ideal: 0, width: 1,
	}
)

var benchmarks = []benchmark{
	{"send-tx", parts{{"send-tx", false, sendTx}}, ratio, 0.97},
	{"atomic", parts{{"atomic", false, atomicMode}}, ratio, 0.85},
	{"tracked", parts{{"tracked", false, trackedMode}}, ratio, math.NaN()},
	{"overhead", parts{{"overhead of a delivery", true, overheadReceive}, {"overhead of a send", true, overheadSend}}, added, 12},
}

// verdict is a benchmark's result.
type verdict struct {
	score, control interval
	valid          bool
}

func (v verdict) word() string {
	if v.valid {
		return "valid"
	}
	return "invalid"
}

// judge compares ours with the mean of the peer's two, and the two with each
// other.
func (b benchmark) judge(blocks []block) verdict {
	scores, controls := make([]float64, len(blocks)), make([]float64, len(blocks))
	for i, bl := range blocks {
		scores[i] = b.score(bl[0], bl[1].add(bl[2]))
		controls[i] = b.score(bl[2], bl[1])
	}
	v := verdict{score: medianOf(scores), control: medianOf(controls)}
	v.valid = v.control.holds(b.ideal) && v.control.high-v.control.low <= b.width
	return v
}

// worse is the result of two parts.
func (b benchmark) worse(v, o verdict) verdict {
	valid := v.valid && o.valid
	if b.least == (o.score.mid < v.score.mid) {
		v = o
	}
	v.valid = valid
	return v
}

// aimed says whether the aim is met.
func (b benchmark) aimed(v verdict) string {
	if math.IsNaN(b.aim) {
		return "no aim"
	}
	word, met := "at most", v.score.mid <= b.aim
	if b.least {
		word, met = "at least", v.score.mid >= b.aim
	}
	result := "MISS"
	if met {
		result = "PASS"
	}
	return fmt.Sprintf("aim %s %g: %s", word, b.aim, result)
}
