// Package loop is the one way in which txmq runs something in the background.
package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// ErrDrained is the cause of the context of a step that was still running when
// Drain was over.
var ErrDrained = errors.New("loop: drain time is over")

// Loop calls Step again and again until its context ends. A step never
// overlaps itself.
type Loop struct {
	// Step does one bounded piece of work and says whether there is more.
	Step func(context.Context) (more bool, err error)
	// Interval is the pause after a step that found nothing more, ±10 %.
	Interval time.Duration
	// Drain is what a step in progress gets when the context ends. 0: nothing.
	Drain time.Duration
	// OnError sees a step's error and picks the pause. Nil: Interval.
	OnError func(error) time.Duration
}

// Run blocks until ctx ends and the step in progress is over, and then returns
// nil. The first step runs at once.
func (l Loop) Run(ctx context.Context) error {
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	drained := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(drained)
		t := time.NewTimer(l.Drain)
		defer t.Stop()
		select {
		case <-t.C:
			abort(ErrDrained)
		case <-work.Done():
		}
	})
	defer func() {
		abort(nil)
		if !keep() {
			<-drained
		}
	}()
	for pause := time.Duration(0); wait(ctx, pause); {
		more, err := l.Step(work)
		switch {
		case err != nil && l.OnError != nil:
			pause = l.OnError(err)
		case err == nil && more:
			pause = 0
		default:
			pause = jitter(l.Interval)
		}
	}
	return nil
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // spreads load, guards nothing
}

func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
