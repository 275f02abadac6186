package consumer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

func TestWait(t *testing.T) {
	t.Parallel()
	b := onMariaDB(t)
	for name, mode := range modes() {
		wait := func(c *Config) { c.Wait = Wait{Max: 20 * time.Second} }
		t.Run(name+" waits until the other worker is done, and is a duplicate", func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			slow := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				close(entered)
				<-leave
				return pay(ctx, tx, d)
			}))
			var wg sync.WaitGroup
			wg.Go(func() { want(t, slow.deliver(t.Context(), message("wait:"+name, "x")), rocketmq.Ack) })
			<-entered
			other := b.consumer(t, mode(pay), wait)
			wg.Go(func() { want(t, other.deliver(t.Context(), message("wait:"+name, "x")), rocketmq.Ack) })
			close(leave)
			wg.Wait()
			if n := b.effects(t, "wait:"+name); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
		})
		t.Run(name+" runs when the other worker fails", func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			slow := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error {
				close(entered)
				<-leave
				return errors.New("no")
			}))
			var wg sync.WaitGroup
			wg.Go(func() {
				// Retry, or an Ack as a duplicate if the other was done before FAIL
				// could be written.
				if got := slow.deliver(t.Context(), message("fails:"+name, "x")); got.Kind == rocketmq.DeadLetter {
					t.Errorf("result = %v", got)
				}
			})
			<-entered
			other := b.consumer(t, mode(pay), wait)
			wg.Go(func() { want(t, other.deliver(t.Context(), message("fails:"+name, "x")), rocketmq.Ack) })
			close(leave)
			wg.Wait()
			if n := b.effects(t, "fails:"+name); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
		})
	}
	t.Run("after Max it is later, never an acknowledgement", func(t *testing.T) {
		release := make(chan struct{})
		entered := make(chan struct{})
		slow := b.consumer(t, Tracked(func(context.Context, *gorm.DB, *Delivery) error {
			close(entered)
			<-release
			return nil
		}))
		var wg sync.WaitGroup
		wg.Go(func() { want(t, slow.deliver(t.Context(), message("long", "x")), rocketmq.Ack) })
		<-entered
		other := b.consumer(t, Tracked(pay), func(c *Config) { c.Wait = Wait{Poll: 5 * time.Millisecond, Max: 30 * time.Millisecond} })
		want(t, other.deliver(t.Context(), message("long", "x")), rocketmq.Retry)
		close(release)
		wg.Wait()
	})
}

func TestWaitIsChecked(t *testing.T) {
	t.Parallel()
	for _, w := range []Wait{{Max: -1}, {Max: time.Hour}, {Poll: time.Second}, {Poll: -1, Max: time.Second}, {Poll: 2 * time.Second, Max: time.Second}} {
		_, err := New(Config{Wait: w})
		if err == nil || !strings.Contains(err.Error(), "Config.Wait.") {
			t.Errorf("New with %+v = %v, want Wait refused", w, err)
		}
	}
}

func TestAfterCommit(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		t.Helper()
		var calls []string
		fail := true
		c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
			d.AfterCommit(func(ctx context.Context) {
				if r := b.record(t, d.EventID); ctx.Err() != nil || r.Status != "SUCCESS" {
					t.Errorf("record = %+v, %v, want it committed", r, ctx.Err())
				}
				calls = append(calls, "first")
			})
			d.AfterCommit(func(context.Context) { panic("not the event's trouble") })
			d.AfterCommit(func(context.Context) { calls = append(calls, "last") })
			if fail {
				return errors.New("once")
			}
			return pay(ctx, tx, d)
		}))
		want(t, c.deliver(t.Context(), message("after", "x")), rocketmq.Retry)
		if len(calls) != 0 {
			t.Errorf("calls after a failure = %v, want none", calls)
		}
		fail = false
		want(t, c.deliver(t.Context(), message("after", "x")), rocketmq.Ack)
		want(t, c.deliver(t.Context(), message("after", "x")), rocketmq.Ack)
		if strings.Join(calls, " ") != "first last" {
			t.Errorf("calls = %v, want first and last, once", calls)
		}
		if !strings.Contains(b.log(), "not the event's trouble") {
			t.Error("the panic is not in the log")
		}
		if done := seen[txmq.Delivered](b); len(done) != 3 {
			t.Errorf("%d deliveries reported, want 3", len(done))
		}
	})
}
