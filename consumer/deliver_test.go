package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestDeliver(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		ctx := t.Context()

		t.Run("first delivery runs, the next four are duplicates", func(t *testing.T) {
			c := b.consumer(t, mode(pay))
			for range 5 {
				want(t, c.deliver(ctx, message("pay:1", "x")), rocketmq.Ack)
			}
			if n := b.effects(t, "pay:1"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
			if r := b.record(t, "pay:1"); r.Status != model.Success || r.RetryCnt != 0 || r.Version != 1 {
				t.Errorf("record = %+v, want SUCCESS, no retry, version 1", r)
			}
		})

		t.Run("a failure is recorded, retried and then done once", func(t *testing.T) {
			runs := 0
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if runs++; d.Attempt != runs {
					t.Errorf("attempt = %d, want %d", d.Attempt, runs)
				}
				if err := pay(ctx, tx, d); err != nil || runs == 3 {
					return err
				}
				return errors.New("no such account")
			}))

			first := c.deliver(ctx, message("pay:2", "x"))
			if first != (rocketmq.Result{Kind: rocketmq.Retry, Delay: time.Second}) {
				t.Errorf("first = %v, want a retry after 1s", first)
			}
			if r := b.record(t, "pay:2"); r.Status != model.Fail || r.RetryCnt != 0 || r.LastError != "no such account" || r.Owner != "" {
				t.Errorf("record = %+v, want FAIL with the error", r)
			}
			second := c.deliver(ctx, message("pay:2", "x"))
			if second != (rocketmq.Result{Kind: rocketmq.Retry, Delay: 2 * time.Second}) {
				t.Errorf("second = %v, want a retry after 2s", second)
			}
			if n := b.effects(t, "pay:2"); n != 0 {
				t.Errorf("effects of failed runs = %d, want 0", n)
			}
			want(t, c.deliver(ctx, message("pay:2", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("pay:2", "x")), rocketmq.Ack)
			if r := b.record(t, "pay:2"); r.Status != model.Success || r.RetryCnt != 2 {
				t.Errorf("record = %+v, want SUCCESS after 2 retries", r)
			}
			if n := b.effects(t, "pay:2"); n != 1 || runs != 3 {
				t.Errorf("effects = %d in %d runs, want 1 in 3", n, runs)
			}
		})

		t.Run("the record says when the broker will bring it, which is not when it was asked to", func(t *testing.T) {
			c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error { return errors.New("not now") }),
				func(c *Config) { c.Backoff.Min = 31 * time.Minute })
			if r := c.deliver(ctx, message("pay:late", "x")); r.Delay != 31*time.Minute {
				t.Errorf("asked for %v", r.Delay)
			}
			r := b.record(t, "pay:late")
			if got := r.NextRetryAt.Sub(r.UpdatedAt.Time); got != time.Hour {
				t.Errorf("due after %v, want 1h: the broker has no level between 30m and that", got)
			}
		})

		t.Run("B25 attempts used up end in DEAD and the dead-letter queue", func(t *testing.T) {
			c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error { return errors.New("never works") }),
				func(c *Config) { c.MaxAttempts = 3 })
			want(t, c.deliver(ctx, message("pay:3", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("pay:3", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("pay:3", "x")), rocketmq.DeadLetter)
			want(t, c.deliver(ctx, message("pay:3", "x")), rocketmq.Ack) // found dead
			if r := b.record(t, "pay:3"); r.Status != model.Dead || r.LastError != "never works" || r.RetryCnt != 2 {
				t.Errorf("record = %+v, want DEAD at the third attempt", r)
			}
			if kept := b.keptBody(t, "pay:3"); kept != "x" {
				t.Errorf("body of the DEAD row = %q, want the message's", kept)
			}
		})

		t.Run("a handler's error that wraps txmq's own counts as any other", func(t *testing.T) {
			for i, sentinel := range []error{txmq.ErrOutcomeUnknown, txmq.ErrLeaseLost, txmq.ErrTxBroken, txmq.ErrTxMisused} {
				id := fmt.Sprintf("nested:%d", i)
				c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error {
					return fmt.Errorf("send in handler: %w", sentinel)
				}), func(c *Config) { c.MaxAttempts = 2 })
				want(t, c.deliver(ctx, message(id, "x")), rocketmq.Retry)
				want(t, c.deliver(ctx, message(id, "x")), rocketmq.DeadLetter)
				if r := b.record(t, id); r.Status != model.Dead {
					t.Errorf("record = %+v, want DEAD", r)
				}
			}
		})

		t.Run("a permanent error is DEAD at once", func(t *testing.T) {
			c := b.consumer(t, mode(func(context.Context, *gorm.DB, *Delivery) error {
				return fmt.Errorf("wrapped: %w", Permanent(errors.New("no such order")))
			}), func(c *Config) { c.OmitBody = true })
			want(t, c.deliver(ctx, message("pay:4", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "pay:4"); r.Status != model.Dead || !strings.Contains(r.LastError, "no such order") {
				t.Errorf("record = %+v, want DEAD with the reason", r)
			}
			if kept := b.keptBody(t, "pay:4"); kept != "" {
				t.Errorf("body of the DEAD row = %q, want none", kept)
			}
		})

		t.Run("B23 panics and a Goexit are failures, the next message goes on", func(t *testing.T) {
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				switch d.EventID {
				case "panic":
					panic("boom")
				case "exit":
					runtime.Goexit()
				}
				return pay(ctx, tx, d)
			}))
			want(t, c.deliver(ctx, message("panic", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("exit", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("fine", "x")), rocketmq.Ack)
			if r := b.record(t, "panic"); r.Status != model.Fail || r.LastError != "handler panicked: boom" {
				t.Errorf("record = %+v, want FAIL with the panic", r)
			}
			if r := b.record(t, "exit"); r.Status != model.Fail {
				t.Errorf("record = %+v, want FAIL", r)
			}
			if !strings.Contains(b.log(), "deliver_test.go") {
				t.Error("the log has no stack of the panic")
			}
		})

		t.Run("B30 without event ID each is buried in sight, none is a duplicate", func(t *testing.T) {
			c, before := b.consumer(t, mode(pay)), b.effects(t, "")
			want(t, c.deliver(ctx, message("", "a")), rocketmq.DeadLetter)
			want(t, c.deliver(ctx, message("", "b")), rocketmq.DeadLetter)
			want(t, c.deliver(ctx, message(strings.Repeat("x", 256), "c")), rocketmq.DeadLetter)
			dead, err := b.store.Records(ctx, model.Filter{Status: model.Dead})
			if err != nil || len(dead) < 3 || !strings.HasPrefix(dead[len(dead)-1].EventID, "missing_id:MSG") {
				t.Errorf("DEAD rows = %+v, %v, want one for each message", dead, err)
			}
			if n := b.effects(t, ""); n != before {
				t.Errorf("effects = %d, want %d: none more", n, before)
			}
			retry := b.consumer(t, mode(pay), func(c *Config) { c.MissingID = MissingRetry })
			want(t, retry.deliver(ctx, message("", "d")), rocketmq.Retry)
		})

		t.Run("B32 the same event ID with another body is no duplicate", func(t *testing.T) {
			c := b.consumer(t, mode(pay))
			want(t, c.deliver(ctx, message("pay:5", "10 EUR")), rocketmq.Ack)
			m := message("pay:5", "99 EUR")
			want(t, c.deliver(ctx, m), rocketmq.DeadLetter)
			want(t, c.deliver(ctx, m), rocketmq.DeadLetter) // the same again finds its own row
			dead, err := b.store.Records(ctx, model.Filter{Status: model.Dead})
			n := 0
			for _, r := range dead {
				if strings.HasPrefix(r.EventID, "payload_mismatch:") && strings.Contains(r.LastError, "pay:5") {
					n++
				}
			}
			if err != nil || n != 1 {
				t.Errorf("%d rows for the conflict, %v, want 1", n, err)
			}
			if r := b.record(t, "pay:5"); r.Status != model.Success {
				t.Errorf("record = %+v, want SUCCESS untouched", r)
			}
			if got := seen[txmq.PayloadConflict](b); len(got) != 2 {
				t.Errorf("conflicts observed = %v, want 2", got)
			}
		})

		t.Run("B29 event IDs are compared byte by byte", func(t *testing.T) {
			c := b.consumer(t, mode(pay))
			long := strings.Repeat("k", 64)
			ids := []string{"Evt-A", "evt-a", "Evt-A ", "é", "e", long + "suffix", long + "other!"}
			for _, id := range append(ids, ids...) {
				want(t, c.deliver(ctx, message(id, "x")), rocketmq.Ack)
			}
			for _, id := range ids {
				if n := b.effects(t, id); n != 1 {
					t.Errorf("effects of %q = %d, want 1", id, n)
				}
			}
		})

		t.Run("a stop costs no attempt", func(t *testing.T) {
			stop, cancel := context.WithCancelCause(ctx)
			c := b.consumer(t, mode(func(ctx context.Context, _ *gorm.DB, _ *Delivery) error {
				cancel(errors.New("drain is over"))
				<-ctx.Done()
				return ctx.Err()
			}), func(c *Config) { c.MaxAttempts = 1 })
			want(t, c.deliver(stop, message("pay:6", "x")), rocketmq.Retry)
			again := b.consumer(t, mode(pay), func(c *Config) { c.MaxAttempts = 1 })
			want(t, again.deliver(ctx, message("pay:6", "x")), rocketmq.Ack)
			if n := b.effects(t, "pay:6"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
		})

		t.Run("a handler that outlives its deadline has failed, though it returns nil", func(t *testing.T) {
			began := false
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				began = true
				err := pay(ctx, tx, d)
				<-ctx.Done()
				return err
			}), func(c *Config) { c.Deadline = 50 * time.Millisecond })
			for !began { // on a busy machine the claim alone may take as long
				want(t, c.deliver(ctx, message("pay:7", "x")), rocketmq.Retry)
			}
			if r := b.record(t, "pay:7"); r.Status != model.Fail || !strings.Contains(r.LastError, errDeadline.Error()) {
				t.Errorf("record = %+v, want FAIL by the deadline", r)
			}
			if n := b.effects(t, "pay:7"); n != 0 {
				t.Errorf("effects = %d, want 0", n)
			}
		})

		t.Run("B22 the same event at the same time runs once", func(t *testing.T) {
			var running, most atomic.Int32
			entered, leave := make(chan struct{}), make(chan struct{})
			var once sync.Once
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				once.Do(func() { close(entered) })
				<-leave
				return pay(ctx, tx, d)
			}))
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { want(t, c.deliver(ctx, message("pay:8", "x")), rocketmq.Ack) })
			}
			<-entered
			close(leave)
			wg.Wait()
			if n := b.effects(t, "pay:8"); n != 1 || most.Load() != 1 {
				t.Errorf("effects = %d with %d at a time, want 1 and 1", n, most.Load())
			}
		})
	})
}

func (b *bundle) keptBody(t *testing.T, eventID string) string {
	t.Helper()
	var body []byte
	err := b.db.Raw("SELECT body FROM "+b.store.Table("msg_consume")+" WHERE event_id = ?", eventID).Row().Scan(&body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
