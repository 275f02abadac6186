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

// die claims the event so often, and each worker ends without a word.
func (b *bundle) die(t *testing.T, event string, times int) {
	t.Helper()
	for range times {
		r := b.consumer(t, Tracked(pay)).arrived(message(event, "x"))
		if err := errors.Join(r.name(), r.claim(t.Context())); err != nil {
			t.Fatal(err)
		}
		b.clock.Add(61 * time.Second)
	}
}

// What killed its workers is DEAD; a person who has mended the handler gets one
// run for each Retry, whatever the count says.
func TestRetryByHandRuns(t *testing.T) {
	t.Parallel()
	for name, bury := range map[string]func(*testing.T, *bundle){
		"after its workers died": func(t *testing.T, b *bundle) {
			b.die(t, "e", 3)
			c := b.consumer(t, Tracked(pay), func(c *Config) { c.MaxAttempts = 3 })
			want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.DeadLetter)
		},
		"after the limit was lowered": func(t *testing.T, b *bundle) {
			fail := Tracked(func(context.Context, *gorm.DB, *Delivery) error { return errors.New("no") })
			c := b.consumer(t, fail, func(c *Config) { c.MaxAttempts = 6 })
			for range 5 {
				want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Retry)
			}
			want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.DeadLetter)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onSQLite(t)
			bury(t, b)
			ran := 0
			c := b.consumer(t, Tracked(func(context.Context, *gorm.DB, *Delivery) error { ran++; return errors.New("still no") }),
				func(c *Config) { c.MaxAttempts = 3 })
			for n := 1; n <= 2; n++ {
				if err := b.store.Retry(t.Context(), b.record(t, "e"), model.By{Actor: "ann", Reason: "mended"}); err != nil {
					t.Fatal(err)
				}
				want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.DeadLetter)
				if r := b.record(t, "e"); ran != n || r.Status != model.Dead || r.LastError != "still no" {
					t.Errorf("after retry %d: %d runs, record %s %q", n, ran, r.Status, r.LastError)
				}
			}
		})
	}
}

// A job may sweep what lost its worker before the broker brings it: its turn is
// one at a time all the same, and its deaths count.
func TestSweptEventsHaveLostTheirWorker(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]Work{"atomic": Atomic(pay), "tracked": Tracked(pay)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onSQLite(t)
			b.die(t, "e", 1)
			if swept, err := b.store.Sweep(t.Context(), 10); err != nil || len(swept) != 1 {
				t.Fatalf("Sweep = %d rows, %v", len(swept), err)
			}
			c := b.consumer(t, work)
			done := c.keys.try(takenOver, time.Hour) // another has the turn
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan rocketmq.Result, 1)
			go func() { ended <- c.deliver(ctx, message("e", "x")) }()
			for b.record(t, "e").LastError != errTurn.Error() {
				if len(ended) > 0 {
					t.Fatal("it did not wait for its turn")
				}
			}
			cancel()
			want(t, <-ended, rocketmq.Retry)
			done()
			if r := b.record(t, "e"); !r.Lost() || r.RetryCnt != 0 {
				t.Errorf("record lost %v, retries %d; want the mark kept and nothing counted", r.Lost(), r.RetryCnt)
			}
			want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Ack)
			if n := b.effects(t, "e"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
		})
	}
}

// A database that is away while handlers work costs no attempts, however often.
func TestOutagesCostNoAttempts(t *testing.T) {
	t.Parallel()
	through, wall := throughCutter(t)
	b := setup(t, through, &gorm.Config{})
	away := true
	c := b.consumer(t, Tracked(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
		if away {
			wall.cut(cutAll)
			return tx.Exec("SELECT 1").Error
		}
		return pay(ctx, tx, d)
	}), func(c *Config) { c.MaxAttempts = 2 })
	for n := range 4 {
		want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Retry)
		wall.cut(cutNothing)
		b.clock.Add(61 * time.Second)
		if r := b.record(t, "e"); r.Status == model.Dead {
			t.Fatalf("DEAD after outage %d: %s", n+1, r.LastError)
		}
	}
	away = false
	want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Ack)
	if n := b.effects(t, "e"); n != 1 {
		t.Errorf("effects = %d, want 1", n)
	}
	for _, d := range seen[txmq.Delivered](b) {
		if d.Err != nil && strings.Contains(d.Err.Error(), "died") {
			t.Errorf("a delivery says that its workers died: %v", d.Err)
		}
	}
}

// The copy at hand may be the last one: what fails of a redriven event is kept.
func TestARedrivenFailureKeepsItsMessage(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	c := b.consumer(t, Atomic(func(context.Context, *gorm.DB, *Delivery) error { return errors.New("no") }))
	want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Retry)
	b.clock.Add(time.Hour)
	if ok, err := b.store.Redrive(t.Context(), b.record(t, "e"), time.Minute, time.Minute); err != nil || !ok {
		t.Fatalf("Redrive = %v, %v", ok, err)
	}
	m := message("e", "x")
	m.OffsetMsgId = "7F000001000078BF00000000000000FF"
	want(t, c.deliver(t.Context(), m), rocketmq.Ack)
	r := b.record(t, "e")
	p, err := b.store.Payload(t.Context(), r)
	if err != nil || string(p.Body) != "x" || r.Position.OffsetMsgID != m.OffsetMsgId {
		t.Errorf("Payload = %q, %v at %s; want the copy's body and place", p.Body, err, r.Position.OffsetMsgID)
	}
}

// A claim may have happened though its answer never came. Nobody works on the
// record then, and no worker has died.
func TestAClaimWithoutAnswerCostsNothing(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	c := b.consumer(t, Tracked(pay))
	r := c.arrived(message("e", "x"))
	if err := errors.Join(r.name(), r.claim(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.claims = true
	if end := r.unclaimed(t.Context(), context.Canceled); end.result.Kind != rocketmq.Retry {
		t.Errorf("told the broker %v, want a retry", end.result)
	}
	if rec := b.record(t, "e"); rec.Status != model.Fail || rec.Lost() || rec.RetryCnt != -1 {
		t.Errorf("record is %s, lost %v, retries %d; want FAIL with nothing counted", rec.Status, rec.Lost(), rec.RetryCnt)
	}
	want(t, c.deliver(t.Context(), message("e", "x")), rocketmq.Ack)
	// Another's record is left alone.
	b.die(t, "other", 1)
	r = c.arrived(message("other", "x"))
	if err := r.name(); err != nil {
		t.Fatal(err)
	}
	r.claims = true
	r.unclaimed(t.Context(), context.Canceled)
	if rec := b.record(t, "other"); rec.Status != model.Processing {
		t.Errorf("another worker's record is %s", rec.Status)
	}
}
