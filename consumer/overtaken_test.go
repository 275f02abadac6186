package consumer

import (
	"context"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// A worker whose COMMIT got lost finds SUCCESS, but another's: a successor was
// quicker. What it left for after the COMMIT has nothing to follow.
func TestOvertakenAtCommit(t *testing.T) {
	t.Parallel()
	through, wall := throughCutter(t)
	b := setup(t, through, &gorm.Config{})
	wall.then = func() {
		h := model.Held{EventID: "e", Consumer: "shares:order-paid", Owner: "successor"}
		if err := b.db.Exec("UPDATE t_msg_consume SET lease_until = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND").Error; err != nil {
			t.Error(err)
		}
		r := b.record(t, "e")
		claimed, err := b.store.Claim(t.Context(), r.Arrival(), h.Owner, time.Minute, 5*time.Second)
		if err != nil || !claimed.TookOver {
			t.Errorf("Claim = %+v, %v, want the take-over", claimed, err)
		}
		h.Version = claimed.Version
		tx, err := b.store.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer tx.Rollback()
		err = tx.Succeed(t.Context(), h)
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	c := b.consumer(t, Tracked(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
		d.AfterCommit(func(context.Context) { t.Error("called after a COMMIT that did not happen") })
		wall.cut(cutCommit)
		return pay(ctx, tx, d)
	}))
	want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Ack)
	if wall.hits() != 1 {
		t.Fatalf("%d COMMITs were cut, want 1", wall.hits())
	}
	if got := seen[txmq.Delivered](b); len(got) != 1 || got[0].Outcome != txmq.OutcomeDuplicate {
		t.Errorf("deliveries = %+v, want one duplicate", got)
	}
	if n := b.effects(t, "e"); n != 0 {
		t.Errorf("effects = %d, want 0: the successor of this test has none", n)
	}
}
