package producer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/model"
)

func TestRecovery(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		// checkAged is a check-back of all open halves after they have aged.
		checkAged := func() []txmq.Verdict {
			b.clock.Add(checker.DefaultFenceAfter + time.Second)
			b.broker.check(t.Context()) // never decided by the first
			return b.broker.check(t.Context())
		}

		t.Run("B03 check while the local transaction is running", func(t *testing.T) {
			m := message("b03", "a")
			var during []txmq.Verdict
			b.broker.fail(faults{copies: 1})
			r, err := b.p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
				err := apply(m)(tx)
				during = slices.Concat(b.broker.check(t.Context()), checkAged())
				return err
			})
			wantError(t, err, nil)
			wantReceipt(t, r, txmq.Commit, true)
			if slices.ContainsFunc(during, func(v txmq.Verdict) bool { return v != txmq.Unknown }) {
				t.Errorf("checks during the transaction = %v, want unknown", during)
			}
			b.settle(t)
			b.want(t, "b03", one("a"), []string{"a", "a"}) // the client had stored two halves
		})
		t.Run("B04 check has fenced a stalled call before it begins", func(t *testing.T) {
			m := message("b04", "a")
			b.broker.fail(faults{before: func() {
				if got := checkAged(); !slices.Equal(got, []txmq.Verdict{txmq.Rollback}) {
					t.Errorf("check of the stalled call = %v, want rollback", got)
				}
			}})
			r, err := b.p.SendInTransaction(t.Context(), m, func(*gorm.DB) error { t.Error("function ran"); return nil })
			wantError(t, err, txmq.ErrFenced)
			wantReceipt(t, r, txmq.Rollback, true)
			b.want(t, "b04", none, none)
			_, err = b.send(t, m)
			wantError(t, err, nil)
			b.want(t, "b04", one("a"), one("a"))
		})
		t.Run("B06 end-transaction is lost", func(t *testing.T) {
			b.broker.fail(faults{lostEnd: true})
			r, err := b.send(t, message("b06", "a"))
			wantError(t, err, nil)
			wantReceipt(t, r, txmq.Commit, false)
			if !slices.ContainsFunc(b.events.of("b06"), func(e txmq.Event) bool { _, ok := e.(txmq.EndTransactionLost); return ok }) {
				t.Errorf("events = %v, want EndTransactionLost", b.events.of("b06"))
			}
			b.want(t, "b06", one("a"), none)
			b.broker.check(t.Context())
			b.want(t, "b06", one("a"), one("a"))
		})
		t.Run("B07 three halves of one call", func(t *testing.T) {
			b.broker.fail(faults{copies: 2})
			_, err := b.send(t, message("b07", "a"))
			wantError(t, err, nil)
			if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{txmq.Commit, txmq.Commit}) {
				t.Errorf("checks = %v, want commit for both", got)
			}
			b.want(t, "b07", one("a"), []string{"a", "a", "a"})
		})
		t.Run("B68 crash before BEGIN, fence, same operation again", func(t *testing.T) {
			m := message("b68", "a")
			b.broker.fail(faults{before: func() { // the zombie of attempt 1 wakes after this
				checkAged()
				_, err := b.send(t, m)
				wantError(t, err, nil)
			}})
			_, err := b.send(t, m)
			if !errors.Is(err, txmq.ErrFenced) {
				wantError(t, err, txmq.ErrFenced)
			}
			b.want(t, "b68", one("a"), one("a"))
		})
		t.Run("B69 rolled back, rollback lost, sent again with another body", func(t *testing.T) {
			b.broker.fail(faults{lostEnd: true})
			_, err := b.p.SendInTransaction(t.Context(), message("b69", "wrong"), func(*gorm.DB) error { return errBusiness })
			wantError(t, err, errBusiness)
			b.broker.fail(faults{lostEnd: true})
			_, err = b.send(t, message("b69", "right"))
			wantError(t, err, nil)
			b.settle(t)
			b.want(t, "b69", one("right"), one("right"))
		})
		t.Run("B73 producer's clock is ten minutes behind", func(t *testing.T) {
			b.p.now = func() time.Time { return b.now().Add(-10 * time.Minute) }
			defer func() { b.p.now = b.now }()
			m := message("b73", "a")
			b.broker.fail(faults{before: func() {
				if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{txmq.Unknown}) {
					t.Errorf("first check = %v, want unknown", got)
				}
			}})
			_, err := b.send(t, m)
			wantError(t, err, nil)
			b.want(t, "b73", one("a"), one("a"))
		})
		t.Run("B78 producer group shared by two databases", func(t *testing.T) {
			other := setup(t, onSQLite(t))
			b.broker.fail(faults{lostEnd: true})
			_, err := b.send(t, message("b78", "a"))
			wantError(t, err, nil)
			for range 15 {
				b.clock.Add(31 * time.Second)
				if got := b.broker.checkBy(t.Context(), other.p.check.Check); !slices.Equal(got, []txmq.Verdict{txmq.Unknown}) {
					t.Errorf("answer of the other service = %v, want unknown", got)
				}
			}
			if e := other.events.of("b78"); len(e) == 0 || e[0].(txmq.Checked).Reason != checker.ReasonForeignDB {
				t.Errorf("its events = %v, want %q", e, checker.ReasonForeignDB)
			}
			b.broker.check(t.Context())
			b.want(t, "b78", one("a"), one("a"))
		})
		t.Run("two calls of one event at the same time", func(t *testing.T) {
			results := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := b.send(t, message("both", "a"))
					results <- err
				}()
			}
			failed := 0
			for range 2 {
				if err := <-results; err != nil {
					failed++ // a duplicate, or on SQLite a lock
				}
			}
			if failed != 1 {
				t.Errorf("%d of 2 calls failed, want 1", failed)
			}
			b.settle(t)
			b.want(t, "both", one("a"), one("a"))
		})
		t.Run("observer that panics turns nothing into a failure", func(t *testing.T) {
			p, sim := b.producer(t, func(c *Config) { c.Observe = func(context.Context, txmq.Event) { panic("observer") } })
			m := message("observed", "a")
			_, err := p.SendInTransaction(t.Context(), m, apply(m))
			wantError(t, err, nil)
			if got := sim.visible("observed"); !slices.Equal(got, one("a")) {
				t.Errorf("visible = %v, want a", got)
			}
		})
		t.Run("B15 check after Close", func(t *testing.T) {
			b.broker.fail(faults{lostEnd: true})
			_, err := b.send(t, message("b15", "a"))
			wantError(t, err, nil)
			must(t, b.p.Close(t.Context()))
			if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{txmq.Unknown}) {
				t.Errorf("answer = %v, want unknown", got)
			}
			next, _ := b.producer(t)
			b.broker.checkBy(t.Context(), next.check.Check)
			b.want(t, "b15", one("a"), one("a"))
			pool, err := b.db.DB()
			must(t, err)
			must(t, pool.Close())
			half := &halfMessage{m: message("b15", "b"), props: b.broker.halves[0].props}
			half.times = 14
			if got := next.check.Check(t.Context(), half.asked()); got != txmq.Unknown {
				t.Errorf("answer with the pool closed = %v, want unknown", got)
			}
		})
	})
}

func TestResolveRefusesOtherErrors(t *testing.T) {
	t.Parallel()
	b := setup(t, onSQLite(t))
	var f *txmq.FieldError
	if v, err := b.p.Resolve(t.Context(), errBusiness); v != txmq.Unknown || !errors.As(err, &f) {
		t.Errorf("Resolve = %v, %v, want unknown and a field error", v, err)
	}
	lost := &txmq.OutcomeUnknownError{Topic: "paid", EventID: "e", Attempt: "a", Err: errBusiness}
	if v, err := b.p.Resolve(t.Context(), &txmq.OpError{Op: "send", Err: lost}); v != txmq.Rollback || err != nil {
		t.Errorf("Resolve = %v, %v, want rollback", v, err)
	}
	var rows []model.LogEntry
	must(t, b.db.Where("attempt = ?", "a").Find(&rows).Error)
	if len(rows) != 1 || rows[0].State != model.Fenced || rows[0].ProducerGroup != "orders" {
		t.Errorf("rows = %+v, want one fence", rows)
	}
}
