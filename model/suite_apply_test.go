package model

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

var applyChecks = []check{
	{name: "Apply of an unseen event is SUCCESS after the commit", run: func(t *testing.T, b *bundle) {
		if diff := cmp.Diff(Claimed{Decision: Run}, b.apply(t, "e")); diff != "" {
			t.Errorf("Apply (-want +got):\n%s", diff)
		}
		r := b.find(t, "e")
		want(t, r.is(Success, 1, 0, ""))
		if r.Rest != 0 || !r.LeaseUntil.IsZero() || !r.NextRetryAt.IsZero() {
			t.Errorf("lease %v, rest %v, next retry %v, want none", r.LeaseUntil, r.Rest, r.NextRetryAt)
		}
		if diff := cmp.Diff(arrival("e").At, r.Position); diff != "" {
			t.Errorf("position (-want +got):\n%s", diff)
		}
	}},
	{name: "nobody sees Apply before the COMMIT", needs: two, run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		b.absent(t, "e")
	}},
	{name: "Apply that is rolled back leaves nothing", run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		want(t, tx.DB().Exec("INSERT INTO account VALUES ('a', 10)").Error)
		tx.Rollback()
		b.absent(t, "e")
		if n := b.count(t, "SELECT COUNT(*) FROM account"); n != 0 {
			t.Errorf("%d rows of work stayed, want 0", n)
		}
	}},
	{name: "B19 the work and SUCCESS are committed by one COMMIT", run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		want(t, tx.DB().Exec("INSERT INTO account VALUES ('a', 10)").Error)
		want(t, tx.Commit(t.Context()))
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
		if c := b.apply(t, "e"); c.Decision != Duplicate {
			t.Errorf("redelivery = %+v, want Duplicate", c)
		}
		if n := b.count(t, "SELECT balance FROM account"); n != 10 {
			t.Errorf("balance = %d, want 10", n)
		}
	}},
	{name: "Apply takes FAIL", run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 2, Seen: Fail, RetryCnt: 1}, b.apply(t, "e")); diff != "" {
			t.Errorf("Apply (-want +got):\n%s", diff)
		}
		r := b.find(t, "e")
		want(t, r.is(Success, 3, 1, ""))
		if !r.NextRetryAt.IsZero() {
			t.Errorf("next_retry_at = %v, want NULL", r.NextRetryAt)
		}
	}},
	{name: "Apply takes PROCESSING whose lease is over", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		b.clock.Add(minute + time.Second)
		got := b.apply(t, "e")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 1, Seen: Processing, RetryCnt: 1, TookOver: true, Lost: true, LostOwner: "w1"}, got); diff != "" {
			t.Errorf("Apply (-want +got):\n%s", diff)
		}
		want(t, b.find(t, "e").is(Success, 2, 1, ""))
	}},
	{name: "Apply leaves a live lease alone", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		c := b.apply(t, "e")
		if c.Decision != InProgress || c.Rest <= 50*time.Second || c.Rest > minute {
			t.Errorf("Apply = %+v, want InProgress with a minute of rest", c)
		}
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "Apply of SUCCESS is Duplicate, of DEAD is Buried", run: func(t *testing.T, b *bundle) {
		for status, decision := range map[Status]Decision{Success: Duplicate, Dead: Buried} {
			before := b.in(t, string(status), status)
			b.clock.Add(time.Hour)
			if c := b.apply(t, string(status)); c.Decision != decision {
				t.Errorf("Apply of %s = %+v, want decision %v", status, c, decision)
			}
			want(t, b.find(t, string(status)).is(before.Status, before.Version, before.RetryCnt, ""))
		}
	}},
	{name: "Apply waits for an open transaction on the key at most wait, then is InProgress", needs: two, run: func(t *testing.T, b *bundle) {
		first, second := b.begin(t), b.begin(t)
		if _, err := first.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c, err := second.Apply(t.Context(), arrival("e"), short)
		if took := time.Since(start); err != nil || c.Decision != InProgress || took > 4*short {
			t.Errorf("Apply = %v, %v after %v, want InProgress within about %v", c.Decision, err, took, short)
		}
		second.Rollback()
		first.Rollback()
		if c := b.apply(t, "e"); c.Decision != Run {
			t.Errorf("after the rollback of the first: %+v, want Run", c)
		}
	}},
	{name: "Apply that waits for a taken FAIL row is InProgress too", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		first, second := b.begin(t), b.begin(t)
		if c, err := first.Apply(t.Context(), arrival("e"), short); err != nil || c.Decision != Run {
			t.Fatal(c, err)
		}
		c, err := second.Apply(t.Context(), arrival("e"), short)
		if err != nil || c.Decision != InProgress {
			t.Errorf("Apply = %+v, %v, want InProgress", c, err)
		}
	}},
	{name: "Apply takes a row only as it has seen it", run: func(t *testing.T, b *bundle) {
		for set, wantIt := range map[string]struct {
			decision Decision
			err      error
		}{
			"version = version + 1":      {0, errMoving}, // each time anew
			"lease_until = '2100-01-01'": {InProgress, nil},
			"status = 'SUCCESS'":         {Duplicate, nil},
			"status = 'DEAD'":            {Buried, nil},
		} {
			exec(t, b.db, "DELETE FROM t_msg_consume")
			b.claim(t, "e", "w1")
			b.clock.Add(2 * minute)
			waiting := b.s.d.waiting
			b.between(func(_ int, c conn) {
				_, err := c.ExecContext(t.Context(), "UPDATE t_msg_consume SET "+set)
				want(t, err)
			})
			tx := b.begin(t)
			c, err := tx.Apply(t.Context(), arrival("e"), short)
			if !errors.Is(err, wantIt.err) || c.Decision != wantIt.decision {
				t.Errorf("with %s: Apply = %v, %v, want %v, %v", set, c.Decision, err, wantIt.decision, wantIt.err)
			}
			tx.Rollback()
			b.s.d.waiting = waiting
		}
	}},
	{name: "a rolled-back Apply is failed by the version it saw", run: func(t *testing.T, b *bundle) {
		for i, before := range []struct {
			make func(event string)
			want int
		}{
			{func(string) {}, 0},
			{func(e string) { b.in(t, e, Fail) }, 1},
			{func(e string) { b.claim(t, e, "w1"); b.clock.Add(2 * minute) }, 1},
		} {
			event := string(rune('a' + i))
			before.make(event)
			tx := b.begin(t)
			c, err := tx.Apply(t.Context(), arrival(event), short)
			if err != nil {
				t.Fatal(err)
			}
			tx.Rollback()
			f := Failure{Arrival: arrival(event), Version: c.Version, RetryCnt: c.RetryCnt, Err: errors.New("no stock")}
			want(t, b.s.Fail(t.Context(), f))
			want(t, b.find(t, event).is(Fail, c.Version+1, before.want, ""))
			wantErr(t, "a second Fail of it", b.s.Fail(t.Context(), f), txmq.ErrLeaseLost)
		}
	}},
	{name: "B39 a record that was deleted by hand is seen for the first time", run: func(t *testing.T, b *bundle) {
		b.apply(t, "e")
		if err := b.db.Where("event_id = ?", []byte("e")).Or("event_id = ?", "e").Delete(&ConsumeRecord{}).Error; err != nil {
			t.Fatal(err)
		}
		if n := b.count(t, "SELECT COUNT(*) FROM t_msg_consume"); n != 0 {
			t.Fatalf("%d rows, want 0: a record knows no soft delete", n)
		}
		if c := b.apply(t, "e"); c.Decision != Run || c.Version != 0 {
			t.Errorf("Apply = %+v, want a fresh Run", c)
		}
	}},
	{name: "B27 five redeliveries are five duplicates", run: func(t *testing.T, b *bundle) {
		runs := 0
		for range 6 {
			tx := b.begin(t)
			c, err := tx.Apply(t.Context(), arrival("e"), short)
			if err != nil {
				t.Fatal(err)
			}
			if c.Decision == Run {
				runs++
				want(t, tx.Commit(t.Context()))
			}
			tx.Rollback()
			if c, _ := b.claim(t, "e", "w1"); c.Decision != Duplicate {
				t.Errorf("Claim = %+v, want Duplicate", c)
			}
		}
		if runs != 1 {
			t.Errorf("handler ran %d times, want 1", runs)
		}
	}},
}

var txChecks = []check{
	{name: "Commit after the end of Begin's context is a rollback, not unknown", run: func(t *testing.T, b *bundle) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tx, err := b.s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Apply(ctx, arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		cancel()
		err = tx.Commit(ctx)
		wantErr(t, "Commit", err, txmq.ErrTxBroken)
		if errors.Is(err, txmq.ErrOutcomeUnknown) {
			t.Errorf("Commit = %v, want a known outcome", err)
		}
		b.absent(t, "e")
	}},
	{name: "Commit with another context knows that too", run: func(t *testing.T, b *bundle) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tx, err := b.s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Apply(ctx, arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		cancel()
		err = tx.Commit(t.Context())
		wantErr(t, "Commit", err, txmq.ErrTxBroken)
		if errors.Is(err, txmq.ErrOutcomeUnknown) {
			t.Errorf("Commit = %v, want a known outcome", err)
		}
		b.absent(t, "e")
	}},
	{name: "Rollback after Commit or Rollback does nothing", run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		want(t, tx.Commit(t.Context()))
		tx.Rollback()
		tx.Rollback()
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
	}},
	{name: "Begin is at READ COMMITTED", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		var n int
		want(t, tx.DB().Raw("SELECT COUNT(*) FROM account").Scan(&n).Error)
		exec(t, b.db, "INSERT INTO account VALUES ('a', 1)")
		want(t, tx.DB().Raw("SELECT COUNT(*) FROM account").Scan(&n).Error)
		if n != 1 {
			t.Errorf("the transaction sees %d rows, want 1: another's commit", n)
		}
	}},
	{name: "B80 Succeed after a swallowed deadlock writes nothing", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		tx := b.begin(t)
		deadlocked(t, b, tx)
		err := tx.Succeed(t.Context(), h)
		wantErr(t, "Succeed", err, txmq.ErrTxBroken)
		wantErr(t, "Commit", tx.Commit(t.Context()), txmq.ErrTxBroken)
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "the function's transaction is over once Succeed was called", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		tx := b.begin(t)
		want(t, tx.Succeed(t.Context(), h))
		wantErr(t, "Exec", tx.DB().Exec("INSERT INTO account VALUES ('a', 1)").Error, txmq.ErrTxMisused)
		wantErr(t, "Commit", tx.Commit(t.Context()), txmq.ErrTxMisused)
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
}

// deadlocked lets tx be the victim of a deadlock whose error nobody looks at.
func deadlocked(t *testing.T, b *bundle, tx *Tx) {
	t.Helper()
	exec(t, b.db, "INSERT INTO account VALUES ('x', 0), ('y', 0)")
	other := b.db.WithContext(t.Context()).Begin()
	defer other.Rollback()
	// The server sacrifices the smaller transaction: the other one writes more.
	for i := range 20 {
		want(t, other.Exec("INSERT INTO account VALUES (?, 0)", i).Error)
	}
	want(t, other.Exec("UPDATE account SET balance = 1 WHERE id = 'y'").Error)
	want(t, tx.DB().Exec("UPDATE account SET balance = 2 WHERE id = 'x'").Error)
	done := make(chan *gorm.DB)
	go func() { done <- other.Exec("UPDATE account SET balance = 1 WHERE id = 'x'") }()
	err := tx.DB().Exec("UPDATE account SET balance = 2 WHERE id = 'y'").Error
	if err == nil || !b.s.Deadlock(err) {
		t.Errorf("victim = %v, want a deadlock", err)
	}
	want(t, (<-done).Error)
}
