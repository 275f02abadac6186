package consumer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			}), func(c *Config) { c.Deadline, c.Lease = 100*time.Millisecond, 900*time.Millisecond })
			hung.bases[b.store].beats.grace = 100 * time.Millisecond
			var wg sync.WaitGroup
			wg.Go(func() { want(t, hung.deliver(ctx, message("ext:3", "x")), rocketmq.Ack) }) // a duplicate, when it wakes
			<-entered
			var version int64
			other := b.consumer(t, External(func(_ context.Context, d *Delivery) error {
				version = d.Version
				return nil
			}))
			patient, cancel := context.WithTimeout(ctx, 20*time.Second) // the renewals end by themselves, and then the lease
			defer cancel()
			untilAck(patient, other, "ext:3")
			close(wake)
			wg.Wait()
			if r := b.record(t, "ext:3"); r.Status != model.Success || r.Version != version || version < 2 || strings.Contains(r.LastError, "deadline") {
				t.Errorf("record = %+v, want the successor's SUCCESS under version %d", r, version)
			}
			lost := seen[txmq.LeaseLost](b)
			if diff := cmp.Diff([]txmq.LeaseLost{{Consumer: "shares:order-paid", EventID: "ext:3"}}, lost); diff != "" {
				t.Errorf("leases lost (-want +got):\n%s", diff)
			}
		})
		t.Run("eight consumers of one event are inside one at a time, each under a version of its own", func(t *testing.T) {
			var inside atomic.Int32
			var versions []int64 // as the other side has noted them: one at a time, or the race detector says so
			turnedAway := make(chan struct{})
			work := func(ctx context.Context, d *Delivery) error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
					return nil
				}
				defer inside.Add(-1)
				versions = append(versions, d.Version)
				for range 7 { // while the others try
					select {
					case <-turnedAway:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				if d.Attempt < 4 {
					return errors.New("the other side was busy")
				}
				return nil
			}
			var wg sync.WaitGroup
			for range 8 {
				c := b.consumer(t, External(work))
				wg.Go(func() {
					for c.deliver(ctx, message("ext:4", "x")).Kind != rocketmq.Ack {
						select {
						case turnedAway <- struct{}{}:
						default: // nobody is inside
						}
					}
				})
			}
			wg.Wait()
			// A failure's FAIL has a version too.
			if diff := cmp.Diff([]int64{1, 3, 5, 7}, versions); diff != "" {
				t.Errorf("versions of the effects (-want +got):\n%s", diff)
			}
			if r := b.record(t, "ext:4"); r.Status != model.Success || r.Version != 7 || r.RetryCnt != 3 {
				t.Errorf("record = %+v, want SUCCESS under version 7, after 3 failures", r)
			}
		})
	})
}
