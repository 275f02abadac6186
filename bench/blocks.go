package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/txmq/txmq/bench/dbcount"
)

// sample is what one round came to.
type sample struct {
	messages int
	took     time.Duration
	mallocs  uint64
	db       dbcount.Counts
}

func (s sample) add(o sample) sample {
	return sample{s.messages + o.messages, s.took + o.took, s.mallocs + o.mallocs, s.db.Add(o.db)}
}

func (s sample) rate() float64   { return float64(s.messages) / s.took.Seconds() }
func (s sample) allocs() float64 { return float64(s.mallocs) / float64(s.messages) }

// side is one of the things compared. A round of it prepares outside the meter,
// and runs its work in it.
type side struct {
	name  string
	round func(ctx context.Context, m *meter) error
}

// meter measures the part of a round that is between start and stop.
type meter struct {
	counter *dbcount.Counter
	began   time.Time
	before  runtime.MemStats
	dbFrom  dbcount.Counts
	sample  sample
}

func (m *meter) start() {
	m.dbFrom = m.counter.Counts()
	runtime.ReadMemStats(&m.before)
	m.began = time.Now()
}

func (m *meter) stop(messages int) {
	took := time.Since(m.began)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	m.sample = sample{messages, took, after.Mallocs - m.before.Mallocs, m.counter.Counts().Sub(m.dbFrom)}
}

// trio is ours, and its peer twice: a block has each run before and after its
// middle, so that a machine that slows down meets all alike.
type trio struct {
	ours, peer, control side
	counters            [3]*dbcount.Counter
}

// block is one value of each.
type block [3]sample

var orders = [][3]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}}

// roundLimit ends a round that hangs.
const roundLimit = time.Minute

// blocks runs n of them after one that does not count, in turn there and back:
// A B C C B A, then B C A A C B, and so on.
func (t *trio) blocks(ctx context.Context, n int, log *slog.Logger) ([]block, error) {
	sides := [3]side{t.ours, t.peer, t.control}
	var out []block
	for b := -1; b < n; b++ {
		order := orders[(b+len(orders))%len(orders)]
		var got block
		for _, i := range []int{order[0], order[1], order[2], order[2], order[1], order[0]} {
			s, err := one(ctx, sides[i], t.counters[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			got[i] = got[i].add(s)
		}
		log.LogAttrs(ctx, slog.LevelDebug, "block", slog.Int("n", b),
			slog.Float64("ours", got[0].rate()), slog.Float64("peer", got[1].rate()), slog.Float64("control", got[2].rate()))
		if b >= 0 {
			out = append(out, got)
		}
	}
	return out, nil
}

func one(ctx context.Context, s side, c *dbcount.Counter) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("a round took more than %v", roundLimit))
	defer cancel()
	runtime.GC() // else one side pays for the other's garbage
	m := &meter{counter: c}
	if err := s.round(ctx, m); err != nil {
		return sample{}, err
	}
	return m.sample, nil
}
