package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func strict(c *Config) { c.Strict = true }

// past runs a statement below the guard, as code that unwraps it can.
func past(ctx context.Context, tx *gorm.DB, statement string) error {
	pool, ok := tx.Statement.ConnPool.(interface{ Raw() gorm.Tx })
	if !ok {
		return errors.New("the guard can't be unwrapped")
	}
	_, err := pool.Raw().ExecContext(ctx, statement)
	return err
}

func TestStrict(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		t.Run("runs once, fails, skips and ends in DEAD as without", func(t *testing.T) {
			c := b.consumer(t, Atomic(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if r := b.record(t, d.EventID); r.Status == model.Processing || r.Status == model.Success {
					t.Errorf("record meanwhile = %+v, want nobody to see it", r)
				}
				if d.Version != int64(d.Attempt) && d.EventID != "fails" {
					t.Errorf("version = %d in attempt %d", d.Version, d.Attempt)
				}
				switch d.EventID {
				case "fails":
					return errors.New("no stock")
				case "skips":
					return Skip("nothing to do")
				}
				return pay(ctx, tx, d)
			}), strict, func(c *Config) { c.MaxAttempts = 2 })
			want(t, c.deliver(ctx, message("works", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("works", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("skips", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.DeadLetter)
			if n := b.effects(t, "works"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
			for id, status := range map[string]model.Status{"works": model.Success, "skips": model.Success, "fails": model.Dead} {
				if r := b.record(t, id); r.Status != status || r.Owner != "" {
					t.Errorf("record of %s = %+v, want %s", id, r, status)
				}
			}
		})

		// half pays, commits past the guard, and fails.
		half := func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			return errors.Join(pay(ctx, tx, d), past(ctx, tx, "COMMIT"), errors.New("the other half"))
		}
		t.Run("a handler that commits by itself and fails leaves no SUCCESS", func(t *testing.T) {
			c := b.consumer(t, Atomic(half), strict)
			want(t, c.deliver(ctx, message("half", "x")), rocketmq.Retry)
			if r := b.record(t, "half"); r.Status != model.Fail || !strings.Contains(r.LastError, "the other half") || r.RetryCnt != 0 {
				t.Errorf("record = %+v, want FAIL, counted", r)
			}
			want(t, c.deliver(ctx, message("half", "x")), rocketmq.Ack)
		})
		t.Run("without Strict it does: this is what it is for", func(t *testing.T) {
			c := b.consumer(t, Atomic(half))
			want(t, c.deliver(ctx, message("half, not strict", "x")), rocketmq.Ack) // as a duplicate
			if r := b.record(t, "half, not strict"); r.Status != model.Success {
				t.Errorf("record = %+v", r)
			}
		})
		t.Run("a handler that rolls back by itself is not acknowledged", func(t *testing.T) {
			c := b.consumer(t, Atomic(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				return errors.Join(pay(ctx, tx, d), past(ctx, tx, "ROLLBACK"))
			}), strict, func(c *Config) { c.MaxAttempts = 2 })
			want(t, c.deliver(ctx, message("undone", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("undone", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "undone"); r.Status != model.Dead || !strings.Contains(r.LastError, "not the function's to end") {
				t.Errorf("record = %+v, want DEAD that says why", r)
			}
		})
		t.Run("claimed first, it is as Tracked", func(t *testing.T) {
			c := careful(b.consumer(t, Atomic(pay), strict))
			want(t, c.deliver(ctx, message("careful", "x")), rocketmq.Ack)
			if r := b.record(t, "careful"); r.Status != model.Success || r.Version != 1 {
				t.Errorf("record = %+v, want SUCCESS", r)
			}
		})
	})
}
