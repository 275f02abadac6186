package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

var errBusiness = errors.New("the business said no")

// endOfSend takes the end-transaction requests that a send makes, not those
// that answer a check-back.
func endOfSend(f remoting.Frame) bool { return f.ExtFields["fromTransactionCheck"] != "true" }

// isHalf tells the half messages among what is sent.
func isHalf(f remoting.Frame) bool {
	return f.Code == remoting.SendMessage || f.Code == remoting.SendMessageV2
}

func TestSend(t *testing.T) {
	t.Parallel()
	t.Run("commit is visible once and has one effect", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		p := w.producer(t, new(events))
		r, err := p.SendInTransaction(w.ctx, w.message("a"), w.order("a"))
		if err != nil || r.Verdict != txmq.Commit || !r.Ended {
			t.Errorf("receipt = %+v, %v, want it committed and ended", r, err)
		}
		w.visible(t, o, "a", 1)
		w.settled(t, "a")
		_, err = p.SendInTransaction(w.ctx, w.message("a"), w.order("a"))
		wantError(t, err, txmq.ErrDuplicateEvent)
		w.check(t)
	})

	t.Run("rollback is never visible", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		p := w.producer(t, new(events))
		r, err := p.SendInTransaction(w.ctx, w.message("a"), func(tx *gorm.DB) error {
			must(t, w.order("a")(tx))
			return errBusiness
		})
		wantError(t, err, errBusiness)
		if r.Verdict != txmq.Rollback {
			t.Errorf("receipt = %+v, want Rollback", r)
		}
		w.invisible(t, p, o, "a")
		if n := w.number(t, "SELECT COUNT(*) FROM e2e_order WHERE event = 'a'"); n != 0 {
			t.Errorf("%d orders of a rolled-back transaction", n)
		}
	})

	t.Run("B06 the commit is lost on the wire and the check-back brings it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		proxy, seen := w.proxy(t), new(events)
		p := w.producer(t, seen, through(proxy))
		lost := proxy.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1, Match: endOfSend})
		w.send(t, p, "a")
		must(t, lost.Wait(w.ctx, 1))
		first := one(t, w, seen, "a check of a", func(c txmq.Checked) bool { return c.EventID == "a" })
		if first.Verdict != txmq.Commit {
			t.Errorf("first check = %+v, want Commit", first)
		}
		w.visible(t, o, "a", 1)
		w.settled(t, "a")
	})

	t.Run("unknown at first: a check meets the running transaction, and the next commits", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		proxy, seen := w.proxy(t), new(events)
		p := w.producer(t, seen, through(proxy))
		proxy.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1, Match: endOfSend})
		_, err := p.SendInTransaction(w.ctx, w.message("a"), func(tx *gorm.DB) error {
			must(t, w.order("a")(tx))
			// Beyond FenceAfter, while the row is locked: not a reason to fence.
			one(t, w, seen, "a third check", func(c txmq.Checked) bool { return c.EventID == "a" && c.Times >= 3 })
			return nil
		})
		must(t, err)
		for _, c := range of[txmq.Checked](seen) {
			if c.Verdict != txmq.Unknown {
				t.Errorf("check while the transaction ran = %+v, want Unknown", c)
			}
		}
		w.visible(t, o, "a", 1)
		w.settled(t, "a")
	})

	t.Run("the rollback is lost, the check-back fences, and the event can be sent again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		proxy, seen := w.proxy(t), new(events)
		p := w.producer(t, seen, through(proxy))
		proxy.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1, Match: endOfSend})
		r, err := p.SendInTransaction(w.ctx, w.message("a"), func(*gorm.DB) error { return errBusiness })
		wantError(t, err, errBusiness)
		if got := w.attempt(t, r.Attempt); got != model.Fenced {
			t.Errorf("attempt = %s, want FENCED", got)
		}
		one(t, w, seen, "Rollback", func(c txmq.Checked) bool {
			return c.Attempt == r.Attempt && c.Verdict == txmq.Rollback && c.Fenced && c.Times > 1
		})
		w.invisible(t, p, o, "a")
		w.send(t, p, "a")
		w.visible(t, o, "a", 1)
		w.until(t, "both consumed", func() (bool, string) { c := w.tally(t); return c.effects == 2, c.String() })
		w.check(t)
	})

	t.Run("B04 a call that is fenced before its BEGIN commits nothing when it wakes, and may be repeated", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		seen := new(events)
		var held sync.Once
		p := w.producer(t, seen, func(c *producer.Config) {
			c.Observe = func(ctx context.Context, e txmq.Event) {
				seen.observe(ctx, e)
				if half, ok := e.(txmq.HalfSent); ok && half.EventID == "a" {
					held.Do(func() {
						one(t, w, seen, "Rollback", func(c txmq.Checked) bool {
							return c.Attempt == half.Attempt && c.Verdict == txmq.Rollback
						})
					})
				}
			}
		})
		r, err := p.SendInTransaction(w.ctx, w.message("a"), w.order("a"))
		wantError(t, err, txmq.ErrFenced)
		for _, c := range of[txmq.Checked](seen) {
			if c.Times == 1 && c.Verdict != txmq.Unknown || c.Verdict == txmq.Rollback && c.Times < 2 {
				t.Errorf("check = %+v, want the first to decide nothing", c)
			}
		}
		if got := w.attempt(t, r.Attempt); got != model.Fenced {
			t.Errorf("attempt = %s, want FENCED", got)
		}
		w.invisible(t, p, o, "a")
		if n := w.number(t, "SELECT COUNT(*) FROM e2e_order WHERE event = 'a'"); n != 0 {
			t.Errorf("%d orders of a fenced call", n)
		}
		w.send(t, p, "a")
		w.visible(t, o, "a", 1)
		w.until(t, "both consumed", func() (bool, string) { c := w.tally(t); return c.effects == 2, c.String() })
		w.check(t)
	})

	t.Run("B07 three halves of one call have one effect", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		delivered := new(events)
		w.consumer(t, delivered)
		proxy, seen := w.proxy(t), new(events)
		p := w.producer(t, seen, through(proxy), func(c *producer.Config) {
			c.SendTimeout, c.Retries = time.Second, 8
			c.FenceAfter = 10 * time.Second // the first half waits for the third
		})
		lost := proxy.Inject(wireproxy.Fault{Match: isHalf, Action: wireproxy.LoseReply, Count: 2})
		w.send(t, p, "a")
		must(t, lost.Wait(w.ctx, 2))
		w.visible(t, o, "a", 3)
		w.settled(t, "a")
		for _, c := range of[txmq.Checked](seen) {
			if c.Verdict == txmq.Rollback {
				t.Errorf("check = %+v, want Commit in the end for each half of the attempt", c)
			}
		}
		w.until(t, "two duplicates", func() (bool, string) {
			n := 0
			for _, d := range of[txmq.Delivered](delivered) {
				if d.Outcome == txmq.OutcomeDuplicate {
					n++
				}
			}
			return n >= 2, ""
		})
		w.check(t)
	})

	t.Run("B08 a cancelled caller sends nothing, and disturbs nobody", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		proxy := w.proxy(t)
		p := w.producer(t, new(events), through(proxy))
		w.send(t, p, "before")
		halves := proxy.Count(remoting.SendMessage) + proxy.Count(remoting.SendMessageV2)
		conns := proxy.Conns()

		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err := p.SendInTransaction(ctx, w.message("a"), w.order("a"))
		wantError(t, err, context.Canceled)
		w.send(t, p, "after")
		if n := proxy.Count(remoting.SendMessage) + proxy.Count(remoting.SendMessageV2); n != halves+1 {
			t.Errorf("%d halves after the cancelled call and one more, want 1", n-halves)
		}
		for server, n := range proxy.Conns() {
			if n != conns[server] {
				t.Errorf("connections to %s: %d, %d before", server, n, conns[server])
			}
		}
		if got := w.strings(t, "SELECT event FROM e2e_order ORDER BY id"); len(got) != 2 {
			t.Errorf("orders = %v, want before and after", got)
		}
	})

	t.Run("B08 a caller that is cancelled inside its function commits nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		p := w.producer(t, new(events))
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		r, err := p.SendInTransaction(ctx, w.message("a"), func(tx *gorm.DB) error {
			must(t, w.order("a")(tx))
			cancel()
			return nil
		})
		wantError(t, err, context.Canceled)
		if r.Verdict == txmq.Commit {
			t.Errorf("receipt = %+v, want no Commit", r)
		}
		w.invisible(t, p, o, "a")
		if n := w.number(t, "SELECT COUNT(*) FROM e2e_order WHERE event = 'a'"); n != 0 {
			t.Errorf("%d orders of a cancelled transaction", n)
		}
	})
}
