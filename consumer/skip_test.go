package consumer

import (
	"context"
	"fmt"
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestSkip(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		t.Helper()
		runs := 0
		c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
			runs++
			if err := pay(ctx, tx, d); err != nil {
				return err
			}
			return fmt.Errorf("order 7: %w", Skip("it was cancelled"))
		}))
		want(t, c.deliver(t.Context(), message("skip", "x")), rocketmq.Ack)
		want(t, c.deliver(t.Context(), message("skip", "x")), rocketmq.Ack)
		if n := b.effects(t, "skip"); n != 0 || runs != 1 {
			t.Errorf("effects = %d in %d runs, want 0 in 1", n, runs)
		}
		if r := b.record(t, "skip"); r.Status != model.Success || r.LastError != "order 7: skipped: it was cancelled" {
			t.Errorf("record = %+v, want SUCCESS with the reason", r)
		}
		if got := seen[txmq.Delivered](b); len(got) != 2 || got[0].Outcome != txmq.OutcomeSkipped || got[1].Outcome != txmq.OutcomeDuplicate {
			t.Errorf("outcomes = %+v, want skipped, then duplicate", got)
		}
	})
}

func TestSkipHasNoWorkToFollow(t *testing.T) {
	t.Parallel()
	for name, mode := range modes() {
		through, wall := throughCutter(t)
		b := setup(t, through, &gorm.Config{})
		c := b.consumer(t, mode(func(_ context.Context, _ *gorm.DB, d *Delivery) error {
			d.AfterCommit(func(context.Context) { t.Errorf("%s: called after a skip", name) })
			wall.cut(cutCommitReply) // so that the record has to be read again
			return Skip("nothing to do")
		}))
		want(t, c.deliver(t.Context(), message("skip", "x")), rocketmq.Ack)
		if r := b.record(t, "skip"); r.Status != model.Success || wall.hits() != 1 {
			t.Errorf("%s: record = %+v with %d COMMITs cut, want SUCCESS with 1", name, r, wall.hits())
		}
	}
}

func ExampleSkip() {
	fmt.Println(Skip("order was cancelled"))
	// Output: skipped: order was cancelled
}
