package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestTakenOver(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		ctx := t.Context()
		ids := []string{"a", "b", "c"}
		for _, id := range ids { // three that died with their process
			r := careful(b.consumer(t, mode(pay))).arrived(message(id, "x"))
			if err := errors.Join(r.name(), r.claim(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		b.clock.Add(61 * time.Second)
		entered, leave := make(chan string, 3), make(chan struct{})
		c := b.consumer(t, mode(func(_ context.Context, _ *gorm.DB, d *Delivery) error {
			entered <- d.EventID
			<-leave
			if d.Attempt != 2 {
				t.Errorf("attempt = %d, want 2", d.Attempt)
			}
			return nil
		}))
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() { want(t, c.deliver(ctx, message(id, "x")), rocketmq.Ack) })
		}
		first := <-entered
		for _, id := range ids { // the others have let go of theirs, and their attempts
			r := b.record(t, id)
			for id != first && r.Status != model.Fail && ctx.Err() == nil {
				r = b.record(t, id)
			}
			if id != first && (r.RetryCnt != 0 || r.LastError != errTurn.Error()) {
				t.Errorf("record of %s = %+v, want no attempt spent", id, r)
			}
		}
		if len(entered) != 0 {
			t.Errorf("%s runs beside %s", <-entered, first)
		}
		close(leave)
		wg.Wait()
		for _, id := range ids {
			if r := b.record(t, id); r.Status != model.Success || r.RetryCnt != 1 {
				t.Errorf("record of %s = %+v, want SUCCESS in its second run", id, r)
			}
		}
		for _, d := range seen[txmq.Delivered](b) {
			if !d.TookOver || d.Attempt != 2 {
				t.Errorf("delivered = %+v, want taken over, second run", d)
			}
		}
	})
}
