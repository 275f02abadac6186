package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// redriven leaves a FAIL row of one run, which a job has delivered again.
func (b *bundle) redriven(t *testing.T, id string) {
	t.Helper()
	first := b.consumer(t, Atomic(func(context.Context, *gorm.DB, *Delivery) error { return errors.New("first run") }))
	want(t, first.deliver(t.Context(), message(id, "x")), rocketmq.Retry)
	b.clock.Add(10 * time.Minute)
	ok, err := b.store.Redrive(t.Context(), b.record(t, id), time.Minute, 5*time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
}

// last is the outcome that was reported last.
func (b *bundle) last(t *testing.T) txmq.Delivered {
	t.Helper()
	all := seen[txmq.Delivered](b)
	if len(all) == 0 {
		t.Fatal("nothing is reported")
	}
	return all[len(all)-1]
}

func TestRedriven(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		ctx := t.Context()
		fails := func(context.Context, *gorm.DB, *Delivery) error { return errors.New("still no stock") }
		tracked := mode(pay).mode == modeTracked

		t.Run("a failure that is recorded is acknowledged: the job brings the next copy", func(t *testing.T) {
			b.redriven(t, "fails")
			c := b.consumer(t, mode(fails), func(c *Config) { c.MaxAttempts = 3 })
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.Ack)
			if r := b.record(t, "fails"); r.Status != model.Fail || r.RetryCnt != 1 || !r.Redriven() || r.LastError != "still no stock" {
				t.Errorf("record = %+v, want FAIL, counted", r)
			}
			if d := b.last(t); d.Outcome != txmq.OutcomeRetry || d.Err == nil || d.Attempt != 2 {
				t.Errorf("reported = %+v, want a retry", d)
			}
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "fails"); r.Status != model.Dead {
				t.Errorf("record = %+v, want DEAD as usual", r)
			}
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.Ack)
		})
		t.Run("one that works is done", func(t *testing.T) {
			b.redriven(t, "works")
			want(t, b.consumer(t, mode(pay)).deliver(ctx, message("works", "x")), rocketmq.Ack)
			if n := b.effects(t, "works"); n != 1 || b.last(t).Outcome != txmq.OutcomeDone {
				t.Errorf("effects = %d, reported %+v", n, b.last(t))
			}
		})
		t.Run("a permanent failure is dead-lettered", func(t *testing.T) {
			b.redriven(t, "permanent")
			c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error { return Permanent(errors.New("no")) }))
			want(t, c.deliver(ctx, message("permanent", "x")), rocketmq.DeadLetter)
		})
		t.Run("a stop is acknowledged only where it is recorded", func(t *testing.T) {
			b.redriven(t, "stop")
			stop, cancel := context.WithCancel(ctx)
			c := b.consumer(t, mode(func(ctx context.Context, _ *gorm.DB, _ *Delivery) error {
				cancel()
				<-ctx.Done()
				return ctx.Err()
			}))
			kind := rocketmq.Retry // the rollback left nothing that says who brings the next copy sooner
			if tracked {
				kind = rocketmq.Ack
			}
			want(t, c.deliver(stop, message("stop", "x")), kind)
			if r := b.record(t, "stop"); r.Status != model.Fail || r.RetryCnt != 0 {
				t.Errorf("record = %+v, want FAIL, uncounted", r)
			}
			if d := b.last(t); d.Outcome != txmq.OutcomeRetry {
				t.Errorf("reported = %+v, want a retry", d)
			}
		})
		t.Run("in progress elsewhere is not", func(t *testing.T) {
			b.redriven(t, "busy")
			other := b.consumer(t, Tracked(pay)).arrived(message("busy", "x"))
			if err := errors.Join(other.name(), other.claim(ctx)); err != nil {
				t.Fatal(err)
			}
			want(t, b.consumer(t, mode(pay)).deliver(ctx, message("busy", "x")), rocketmq.Retry)
		})
		t.Run("a record that a sweep has moved is", func(t *testing.T) {
			b.redriven(t, "swept")
			c := b.consumer(t, Tracked(func(ctx context.Context, _ *gorm.DB, _ *Delivery) error {
				b.clock.Add(2 * time.Minute)
				_, err := b.store.Sweep(ctx, 10)
				return errors.Join(err, errors.New("too late"))
			}))
			want(t, c.deliver(ctx, message("swept", "x")), rocketmq.Ack)
			if d := b.last(t); d.Outcome != txmq.OutcomeRetry {
				t.Errorf("reported = %+v, want a retry", d)
			}
		})
	})
}

func TestRedrivenWithoutDatabase(t *testing.T) {
	t.Parallel()
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through, wall := throughCutter(t)
			b := setup(t, through, &gorm.Config{})
			b.redriven(t, "away")
			c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error {
				wall.cut(cutAll)
				return errors.New("no stock, and now no database")
			}))
			want(t, c.deliver(t.Context(), message("away", "x")), rocketmq.Retry)
			want(t, c.deliver(t.Context(), message("away", "x")), rocketmq.Retry)
			wall.cut(cutNothing)
			if d := b.last(t); d.Outcome != txmq.OutcomeRetry {
				t.Errorf("reported = %+v, want a retry", d)
			}
		})
	}
}
