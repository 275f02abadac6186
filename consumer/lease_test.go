package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		// claimByDead leaves a PROCESSING row of a worker that died.
		claimByDead := func(t *testing.T, eventID, body string) {
			t.Helper()
			r := b.consumer(t, Tracked(pay)).arrived(message(eventID, body))
			if err := errors.Join(r.name(), r.claim(ctx)); err != nil || r.claimed.Decision != model.Run {
				t.Fatalf("claim = %+v, %v", r.claimed, err)
			}
		}

		for name, mode := range modes() {
			t.Run("B20 "+name+" waits for a live lease, and takes over one that is over", func(t *testing.T) {
				id := "stuck:" + name
				claimByDead(t, id, "x")
				c := b.consumer(t, mode(pay))
				got := c.deliver(ctx, message(id, "x"))
				if got.Kind != rocketmq.Retry || got.Delay < 50*time.Second || got.Delay > time.Minute {
					t.Errorf("with a live lease = %+v, want a retry no sooner than its rest", got)
				}
				if n := b.effects(t, id); n != 0 {
					t.Errorf("effects under another's lease = %d, want 0", n)
				}
				b.clock.Add(61 * time.Second)
				want(t, c.deliver(ctx, message(id, "x")), rocketmq.Ack)
				want(t, c.deliver(ctx, message(id, "x")), rocketmq.Ack)
				if r := b.record(t, id); r.Status != model.Success || r.RetryCnt != 1 || r.Version != 2 {
					t.Errorf("record = %+v, want SUCCESS, taken over once", r)
				}
				if n := b.effects(t, id); n != 1 {
					t.Errorf("effects = %d, want 1", n)
				}
			})
		}

		t.Run("B21 a worker that lost its lease rolls back, and does not touch its successor's row", func(t *testing.T) {
			successor := b.consumer(t, Tracked(pay))
			zombie := b.consumer(t, Tracked(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				// It stops for longer than its lease; its heartbeat with it. Another
				// process takes over. On SQLite before the zombie writes: one writer.
				b.clock.Add(2 * time.Minute)
				want(t, successor.deliver(context.Background(), message("zombie", "x")), rocketmq.Ack)
				return pay(ctx, tx, d)
			}))
			want(t, zombie.deliver(ctx, message("zombie", "x")), rocketmq.Ack) // a duplicate by now
			if n := b.effects(t, "zombie"); n != 1 {
				t.Errorf("effects = %d, want the successor's only", n)
			}
			if r := b.record(t, "zombie"); r.Status != model.Success || r.Version != 2 {
				t.Errorf("record = %+v, want the successor's SUCCESS", r)
			}
			if lost := seen[txmq.LeaseLost](b); len(lost) != 1 {
				t.Errorf("leases lost = %v, want 1", lost)
			}
		})

		t.Run("B21 a zombie's failure does not overwrite a success", func(t *testing.T) {
			successor := b.consumer(t, Tracked(pay))
			zombie := b.consumer(t, Tracked(func(context.Context, *gorm.DB, *Delivery) error {
				b.clock.Add(2 * time.Minute)
				want(t, successor.deliver(context.Background(), message("zombie2", "x")), rocketmq.Ack)
				return Permanent(errors.New("too late"))
			}))
			want(t, zombie.deliver(ctx, message("zombie2", "x")), rocketmq.Ack)
			if r := b.record(t, "zombie2"); r.Status != model.Success || strings.Contains(r.LastError, "too late") {
				t.Errorf("record = %+v, want SUCCESS untouched", r)
			}
		})

		t.Run("a heartbeat that finds the row moved ends the handler's context", func(t *testing.T) {
			c := b.consumer(t, Tracked(func(ctx context.Context, _ *gorm.DB, _ *Delivery) error {
				var swept []model.ConsumeRecord
				for len(swept) == 0 && ctx.Err() == nil { // a renewal may be under way
					b.clock.Add(2 * time.Minute)
					var err error
					if swept, err = b.store.Sweep(ctx, 10); err != nil || len(swept) > 1 {
						t.Errorf("sweep = %v, %v, want the one row", swept, err)
					}
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}), func(c *Config) { c.Lease, c.Deadline = 300*time.Millisecond, 290*time.Millisecond })
			got := c.deliver(ctx, message("lost", "x"))
			want(t, got, rocketmq.Retry)
			if r := b.record(t, "lost"); r.Status != model.Fail || !strings.Contains(r.LastError, "swept") {
				t.Errorf("record = %+v, want the sweep's FAIL", r)
			}
		})

		t.Run("a Tracked event whose workers die ends in DEAD at the limit", func(t *testing.T) {
			for range 3 {
				claimByDead(t, "killer", "x")
				b.clock.Add(61 * time.Second)
			}
			c := b.consumer(t, Tracked(func(context.Context, *gorm.DB, *Delivery) error {
				t.Error("the handler ran beyond the limit")
				return nil
			}), func(c *Config) { c.MaxAttempts = 3 })
			want(t, c.deliver(ctx, message("killer", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "killer"); r.Status != model.Dead || !strings.Contains(r.LastError, errUsedUp.Error()) {
				t.Errorf("record = %+v, want DEAD", r)
			}
		})
	})
}

func TestHeartbeatKeepsALease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		lease := 900 * time.Millisecond
		renewed := make(chan struct{})
		c := b.consumer(t, Tracked(func(ctx context.Context, _ *gorm.DB, d *Delivery) error {
			first := b.record(t, d.EventID).LeaseUntil
			for ctx.Err() == nil {
				if !b.record(t, d.EventID).LeaseUntil.Equal(first.Time) {
					break
				}
			}
			close(renewed)
			return ctx.Err()
		}), func(c *Config) { c.Lease, c.Deadline = lease, lease-1 })
		want(t, c.deliver(t.Context(), message("long", "x")), rocketmq.Ack)
		<-renewed
		if r := b.record(t, "long"); r.Status != model.Success || r.RetryCnt != 0 {
			t.Errorf("record = %+v, want SUCCESS in one run", r)
		}
	})
}
