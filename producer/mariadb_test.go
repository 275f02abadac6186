package producer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	dial, cut := throughCutter(t)
	b := setup(t, dial)
	b.p.settleLimit = 300 * time.Millisecond

	t.Run("B18 COMMIT happened, its answer is lost", func(t *testing.T) {
		cut.arm("after", false)
		r, err := b.send(t, message("b18", "a"))
		wantError(t, err, nil)
		wantReceipt(t, r, txmq.Commit, true)
		b.want(t, "b18", one("a"), one("a"))
	})
	t.Run("B18 COMMIT is lost", func(t *testing.T) {
		cut.arm("before", false)
		r, err := b.send(t, message("b18 before", "a"))
		wantError(t, err, txmq.ErrTxBroken)
		if errors.Is(err, txmq.ErrOutcomeUnknown) {
			t.Errorf("error = %v, want it to say that the outcome is known", err)
		}
		wantReceipt(t, r, txmq.Rollback, true)
		b.want(t, "b18 before", none, none)
		_, err = b.send(t, message("b18 before", "a"))
		wantError(t, err, nil)
		b.want(t, "b18 before", one("a"), one("a"))
	})
	for when, want := range map[string]txmq.Verdict{"after": txmq.Commit, "before": txmq.Rollback} {
		t.Run("B18 database is away "+when+" COMMIT, Resolve settles it", func(t *testing.T) {
			event := "b18 away " + when
			cut.arm(when, true)
			r, err := b.send(t, message(event, "a"))
			wantError(t, err, txmq.ErrOutcomeUnknown)
			wantReceipt(t, r, txmq.Unknown, false)
			var lost *txmq.OutcomeUnknownError
			if !errors.As(err, &lost) || lost.EventID != event || lost.Attempt != r.Attempt || lost.Topic != "paid" {
				t.Errorf("error = %+v, want what Resolve needs", lost)
			}
			if v, err := b.p.Resolve(t.Context(), err); v != txmq.Unknown || err == nil {
				t.Errorf("Resolve with the database away = %v, %v, want unknown and an error", v, err)
			}
			if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{txmq.Unknown}) {
				t.Errorf("check with the database away = %v, want unknown", got)
			}
			cut.heal()
			if v, err := b.p.Resolve(t.Context(), err); v != want || err != nil {
				t.Errorf("Resolve = %v, %v, want %v", v, err, want)
			}
			if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{want}) {
				t.Errorf("check = %v, want %v", got, want)
			}
			if want == txmq.Commit {
				b.want(t, event, one("a"), one("a"))
			} else {
				b.want(t, event, none, none)
			}
		})
	}
	t.Run("B18 fence whose COMMIT has no answer is no Rollback", func(t *testing.T) {
		b.broker.fail(faults{lostAnswer: true})
		_, err := b.send(t, message("b18 fence", "a"))
		wantError(t, err, txmq.ErrBrokerUnreachable)
		b.clock.Add(2 * time.Minute)
		b.broker.check(t.Context())
		for _, want := range []txmq.Verdict{txmq.Unknown, txmq.Rollback} {
			if want == txmq.Unknown {
				cut.arm("after", false)
			}
			if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{want}) {
				t.Errorf("check = %v, want %v", got, want)
			}
		}
	})
	t.Run("B18 caller leaves while COMMIT is on its way", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		cut.sees = leave
		defer func() { cut.sees = nil }()
		cut.arm("after", false)
		m := message("b18 left", "a")
		r, err := b.p.SendInTransaction(ctx, m, apply(m))
		wantError(t, err, nil)
		wantReceipt(t, r, txmq.Commit, true)
		b.want(t, m.EventID, one("a"), one("a"))
	})
	if cut.cuts != 6 {
		t.Errorf("%d connections were cut, want 6", cut.cuts)
	}

	t.Run("deadlock on the log row begins again", func(t *testing.T) {
		cut.locks = beginTries - 1
		_, err := b.send(t, message("locks", "a"))
		wantError(t, err, nil)
		b.want(t, "locks", one("a"), one("a"))
	})
	t.Run("deadlock on the log row, again and again", func(t *testing.T) {
		cut.locks = beginTries
		r, err := b.send(t, message("locks too often", "a"))
		var server *mysqldriver.MySQLError
		if !errors.As(err, &server) || server.Number != 1213 {
			t.Errorf("error = %v, want the deadlock", err)
		}
		wantReceipt(t, r, txmq.Rollback, true)
		b.want(t, "locks too often", none, none)
	})
}

// A driver that panics in COMMIT says nothing of its outcome.
func TestPanicInCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, onSQLite(t))
	s := &send{p: b.p, m: message("panics", "a"), known: txmq.Rollback}
	s.fn = func(*gorm.DB) error { s.committing = true; panic("driver") }
	must(t, s.prepare(t.Context()))
	if v := s.local(t.Context(), rocketmq.Half{}); v != txmq.Unknown || s.panicked != nil || !errors.Is(s.err, txmq.ErrOutcomeUnknown) {
		t.Errorf("local = %v, %v, %v, want unknown", v, s.panicked, s.err)
	}
}

func TestSwallowedDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, databases[1].dials(t))
	rows := make([]effect, 60)
	for i := range rows {
		rows[i] = effect{Event: "rows", Body: "before"}
	}
	must(t, b.db.Create(&rows).Error)
	touch := func(tx *gorm.DB, from, to int64) error {
		return tx.Model(&effect{}).Where("id BETWEEN ? AND ?", from, to).Update("body", "after").Error
	}

	t.Run("B80 function ignores a deadlock", func(t *testing.T) {
		other := b.db.Begin()
		defer other.Rollback()
		must(t, touch(other, 2, 60)) // much more than ours, so ours is the victim
		unblocked := make(chan error, 1)
		var met error
		m := message("b80", "a")
		r, err := b.p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
			must(t, touch(tx, 1, 1))
			go func() { unblocked <- touch(other, 1, 1) }()
			met = touch(tx, 2, 2)
			_ = apply(m)(tx) // would commit by itself if it got through
			return nil
		})
		if met == nil {
			t.Fatal("no deadlock")
		}
		must(t, <-unblocked)
		wantError(t, err, txmq.ErrTxBroken)
		wantReceipt(t, r, txmq.Rollback, true)
		b.want(t, "b80", none, none)
	})
}
