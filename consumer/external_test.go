package consumer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestExternal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		t.Run("runs under a lease that people see, once, and tells its version", func(t *testing.T) {
			runs := 0
			c := b.consumer(t, External(func(_ context.Context, d *Delivery) error {
				runs++
				if r := b.record(t, d.EventID); r.Status != model.Processing || r.Version != d.Version || r.Rest <= 0 {
					t.Errorf("record meanwhile = %+v, want PROCESSING under version %d", r, d.Version)
				}
				return nil
			}))
			want(t, c.deliver(ctx, message("ext:1", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("ext:1", "x")), rocketmq.Ack)
			if r := b.record(t, "ext:1"); r.Status != model.Success || runs != 1 {
				t.Errorf("record = %+v after %d runs, want SUCCESS after 1", r, runs)
			}
		})
		t.Run("fails, is retried, and ends in DEAD", func(t *testing.T) {
			c := b.consumer(t, External(func(context.Context, *Delivery) error { return errors.New("bank is shut") }),
				func(c *Config) { c.MaxAttempts = 2 })
			want(t, c.deliver(ctx, message("ext:2", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("ext:2", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "ext:2"); r.Status != model.Dead || r.LastError != "bank is shut" {
				t.Errorf("record = %+v, want DEAD", r)
			}
		})
		t.Run("B84 a hung handler loses its lease, and its completion is refused", func(t *testing.T) {
			entered, wake := make(chan struct{}), make(chan struct{})
			hung := b.consumer(t, External(func(context.Context, *Delivery) error {
				close(entered)
				<-wake
				return nil
			}), func(c *Config) { c.Deadline, c.Lease = 50*time.Millisecond, 150*time.Millisecond })
			var wg sync.WaitGroup
			wg.Go(func() { want(t, hung.deliver(ctx, message("ext:3", "x")), rocketmq.Ack) }) // a duplicate, when it wakes
			<-entered
			hung.bases[b.store].beats.expire() // deadline and grace are over
			b.clock.Add(time.Minute)
			var version int64
			other := b.consumer(t, External(func(_ context.Context, d *Delivery) error {
				version = d.Version
				return nil
			}))
			for other.deliver(ctx, message("ext:3", "x")).Kind != rocketmq.Ack { // a renewal was under way
				b.clock.Add(time.Minute)
			}
			close(wake)
			wg.Wait()
			if r := b.record(t, "ext:3"); r.Status != model.Success || r.Version != version || version < 2 || strings.Contains(r.LastError, "deadline") {
				t.Errorf("record = %+v, want the successor's SUCCESS under version %d", r, version)
			}
			if lost := seen[txmq.Delivered](b); len(lost) == 0 {
				t.Error("nothing was reported")
			}
		})
	})
}

// expire ends the renewals of all that is held now.
func (b *heartbeat) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e := range b.held {
		e.until = time.Time{}
	}
}
