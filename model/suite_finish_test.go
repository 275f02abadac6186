package model

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txmq/txmq"
)

func (b *bundle) heart(t tb) *Heart {
	t.Helper()
	h, err := b.s.Heart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// moved makes a record that was held and is not any more, in each way.
var moved = []struct {
	name string
	move func(*testing.T, *bundle, Held) Held // gives what the worker still believes
}{
	{"another owner", func(_ *testing.T, _ *bundle, h Held) Held { h.Owner = "w0"; return h }},
	{"an older version", func(_ *testing.T, _ *bundle, h Held) Held { h.Version--; return h }},
	{"a later version", func(_ *testing.T, _ *bundle, h Held) Held { h.Version++; return h }},
	{"another handler", func(_ *testing.T, _ *bundle, h Held) Held { h.Consumer = "other"; return h }},
	{"finished", func(t *testing.T, b *bundle, h Held) Held { want(t, b.succeed(t, h)); return h }},
	{"failed", func(t *testing.T, b *bundle, h Held) Held { b.fail(t, h, false); return h }},
	{"dead", func(t *testing.T, b *bundle, h Held) Held { b.fail(t, h, true); return h }},
	{"dead, and claimed by nobody", func(t *testing.T, b *bundle, h Held) Held {
		b.fail(t, h, true)
		h.Owner, h.Version = "", h.Version+1
		return h
	}},
	{"swept", func(t *testing.T, b *bundle, h Held) Held {
		b.clock.Add(2 * minute)
		if rows, err := b.s.Sweep(t.Context(), 10); err != nil || len(rows) != 1 {
			t.Fatalf("Sweep = %d rows, %v", len(rows), err)
		}
		return h
	}},
	{"taken over by the same owner", func(t *testing.T, b *bundle, h Held) Held {
		b.clock.Add(2 * minute)
		b.claim(t, h.EventID, h.Owner)
		return h
	}},
	{"taken over", func(t *testing.T, b *bundle, h Held) Held {
		b.clock.Add(2 * minute)
		b.claim(t, h.EventID, "w2")
		return h
	}},
	{"B37 purged", func(t *testing.T, b *bundle, h Held) Held { exec(t, b.db, "DELETE FROM t_msg_consume"); return h }},
}

// columnsOnly leaves out what goes by the clock.
var columnsOnly = cmpopts.IgnoreFields(ConsumeRecord{}, "Rest", "Idle")

// whenMoved checks that do gives ErrLeaseLost and changes nothing.
func whenMoved(t *testing.T, b *bundle, do func(*testing.T, Held) error) {
	for _, m := range moved {
		t.Run(m.name, func(t *testing.T) {
			exec(t, b.db, "DELETE FROM t_msg_consume")
			_, h := b.claim(t, "e", "w1")
			h = m.move(t, b, h)
			before, err := b.s.Records(t.Context(), Filter{})
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, "the old worker", do(t, h), txmq.ErrLeaseLost)
			after, err := b.s.Records(t.Context(), Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after, columnsOnly); diff != "" {
				t.Errorf("table changed (-before +after):\n%s", diff)
			}
		})
	}
}

var finishChecks = []check{
	{name: "Succeed by owner and version is SUCCESS, without a lease", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		want(t, b.succeed(t, h))
		r := b.find(t, "e")
		want(t, r.is(Success, 1, 0, ""))
		if !r.LeaseUntil.IsZero() || !r.NextRetryAt.IsZero() || r.Rest != 0 {
			t.Errorf("lease %v, next retry %v, rest %v, want none", r.LeaseUntil, r.NextRetryAt, r.Rest)
		}
	}},
	{name: "Succeed is nothing before the COMMIT", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		tx := b.begin(t)
		want(t, tx.Succeed(t.Context(), h))
		tx.Rollback()
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "Succeed of a row that moved is ErrLeaseLost", run: func(t *testing.T, b *bundle) {
		whenMoved(t, b, b.succeedT)
	}},
	{name: "B21 a zombie's work is rolled back, its successor's stays", run: func(t *testing.T, b *bundle) {
		exec(t, b.db, "INSERT INTO account VALUES ('a', 0)")
		work := func(h Held) error {
			tx := b.begin(t)
			defer tx.Rollback()
			want(t, tx.DB().Exec("UPDATE account SET balance = balance + 10").Error)
			if err := tx.Succeed(t.Context(), h); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		}
		_, zombie := b.claim(t, "e", "w1")
		b.clock.Add(2 * minute)
		_, successor := b.claim(t, "e", "w2")
		wantErr(t, "zombie before its successor", work(zombie), txmq.ErrLeaseLost)
		want(t, work(successor))
		wantErr(t, "zombie after its successor", work(zombie), txmq.ErrLeaseLost)
		if n := b.count(t, "SELECT balance FROM account"); n != 10 {
			t.Errorf("balance = %d, want 10", n)
		}
		want(t, b.find(t, "e").is(Success, 2, 1, ""))
	}},
	{name: "a worker whose lease is over but not taken may still succeed", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		b.clock.Add(2 * minute)
		want(t, b.succeed(t, h))
	}},
	{name: "Extend moves the lease's end from now", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		b.clock.Add(50 * time.Second)
		want(t, b.heart(t).Extend(t.Context(), h, minute))
		r := b.find(t, "e")
		want(t, r.is(Processing, 1, 0, "w1"))
		b.wantUntil(t, "lease_until", r.LeaseUntil, minute)
		b.clock.Add(50 * time.Second)
		if c, _ := b.claim(t, "e", "w2"); c.Decision != InProgress {
			t.Errorf("Claim = %v, want InProgress", c.Decision)
		}
	}},
	{name: "Extend of a row that moved is ErrLeaseLost", run: func(t *testing.T, b *bundle) {
		heart := b.heart(t)
		whenMoved(t, b, func(t *testing.T, h Held) error { return heart.Extend(t.Context(), h, 7*time.Second) })
	}},
	{name: "two renewals in one millisecond are both kept", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		heart := b.heart(t)
		for range 20 {
			want(t, heart.Extend(t.Context(), h, minute))
		}
	}},
	{name: "Extend does not wait for the handlers' connections", needs: two, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		heart := b.heart(t)
		pool, err := b.db.DB()
		if err != nil {
			t.Fatal(err)
		}
		pool.SetMaxOpenConns(2)
		defer pool.SetMaxOpenConns(0)
		b.begin(t) // the other one
		want(t, heart.Extend(t.Context(), h, minute))
	}},
	{name: "a heart whose connection died takes another", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		heart := b.heart(t)
		var id int64
		want(t, heart.conn().QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		exec(t, b.db, "KILL ?", id)
		want(t, heart.Extend(t.Context(), h, minute))
		want(t, heart.Extend(t.Context(), h, minute))
	}},
}

var releaseChecks = []check{
	{name: "Release is FAIL, due now, and takes the run back out of the count", run: func(t *testing.T, b *bundle) {
		for round, retries := range []int{-1, -1} { // however often, no run has counted
			c, h := b.claim(t, "e", "w1")
			if c.RetryCnt != 0 {
				t.Errorf("round %d: RetryCnt = %d, want 0", round, c.RetryCnt)
			}
			want(t, b.s.Release(t.Context(), h, errNoStock))
			r := b.find(t, "e")
			want(t, r.is(Fail, h.Version+1, retries, ""))
			b.wantUntil(t, "next_retry_at", r.NextRetryAt, 0)
			if r.LastError != "no stock" || !r.LeaseUntil.IsZero() {
				t.Errorf("last_error %q, lease %v", r.LastError, r.LeaseUntil)
			}
		}
	}},
	{name: "Release of a row that moved is ErrLeaseLost", run: func(t *testing.T, b *bundle) {
		whenMoved(t, b, func(t *testing.T, h Held) error { return b.s.Release(t.Context(), h, errNoStock) })
	}},
}

func (b *bundle) succeedT(t *testing.T, h Held) error { return b.succeed(t, h) }

var sweepChecks = []check{
	{name: "Sweep puts PROCESSING with lease over to FAIL, due now, and says whose it was", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		b.clock.Add(minute + time.Second)
		rows, err := b.s.Sweep(t.Context(), 10)
		if err != nil || len(rows) != 1 {
			t.Fatalf("Sweep = %d rows, %v, want 1", len(rows), err)
		}
		want(t, rows[0].is(Processing, 1, 0, "w1")) // as it was
		r := b.find(t, "e")
		want(t, r.is(Fail, 2, 0, "w1")) // whom it has lost
		if wantText := "swept: the lease of w1 was over"; r.LastError != wantText || !r.LeaseUntil.IsZero() {
			t.Errorf("last_error %q, lease %v, want %q, none", r.LastError, r.LeaseUntil, wantText)
		}
		b.wantUntil(t, "next_retry_at", r.NextRetryAt, 0)
	}},
	{name: "Sweep touches nothing else", run: func(t *testing.T, b *bundle) {
		for _, status := range []Status{Success, Fail, Dead} {
			b.in(t, string(status), status)
		}
		b.clock.Add(time.Hour)
		b.claim(t, "live", "w1")
		if rows, err := b.s.Sweep(t.Context(), 10); err != nil || len(rows) != 0 {
			t.Errorf("Sweep = %v, %v, want nothing", rows, err)
		}
	}},
	{name: "Sweep takes at most limit rows, oldest lease first", run: func(t *testing.T, b *bundle) {
		for _, event := range []string{"c", "a", "b"} {
			b.claim(t, event, "w1")
			b.clock.Add(time.Second)
		}
		b.clock.Add(minute)
		var got []string
		for range 3 {
			rows, err := b.s.Sweep(t.Context(), 2)
			if err != nil || len(rows) > 2 {
				t.Fatalf("Sweep(2) = %d rows, %v", len(rows), err)
			}
			for _, r := range rows {
				got = append(got, r.EventID)
			}
		}
		if diff := cmp.Diff([]string{"c", "a", "b"}, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	}},
	{name: "B21 a row that moved after the sweep has read it stays", run: func(t *testing.T, b *bundle) {
		for _, m := range []struct {
			name string
			move func(*testing.T, Held)
		}{
			{"finished", func(t *testing.T, h Held) { want(t, b.succeed(t, h)) }},
			{"failed", func(t *testing.T, h Held) { b.fail(t, h, false) }},
			{"renewed", func(t *testing.T, h Held) { want(t, b.heart(t).Extend(t.Context(), h, minute)) }},
			{"taken over", func(t *testing.T, _ Held) { b.claim(t, "e", "w2") }},
			{"taken over, and that lease is over too", func(t *testing.T, _ Held) { b.claim(t, "e", "w2"); b.clock.Add(2 * minute) }},
			{"purged", func(t *testing.T, _ Held) { exec(t, b.db, "DELETE FROM t_msg_consume") }},
		} {
			t.Run(m.name, func(t *testing.T) {
				exec(t, b.db, "DELETE FROM t_msg_consume")
				_, h := b.claim(t, "e", "w1")
				b.clock.Add(2 * minute)
				stuck := b.find(t, "e")
				m.move(t, h)
				before, err := b.s.Records(t.Context(), Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if swept, err := b.s.SweepOne(t.Context(), stuck); err != nil || swept {
					t.Errorf("SweepOne = %v, %v, want false", swept, err)
				}
				after, err := b.s.Records(t.Context(), Filter{})
				if err != nil || len(after) != len(before) {
					t.Fatal(len(after), err)
				}
				for i := range after {
					want(t, after[i].is(before[i].Status, before[i].Version, before[i].RetryCnt, before[i].Owner))
				}
			})
		}
	}},
	{name: "a swept event is claimed as one that failed", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		b.clock.Add(2 * minute)
		if _, err := b.s.Sweep(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if c, _ := b.claim(t, "e", "w2"); c.Decision != Run || c.Version != 3 || c.RetryCnt != 1 || c.TookOver {
			t.Errorf("Claim = %+v, want Run, version 3, retries 1", c)
		}
	}},
}

var errNoStock = errors.New("no stock")
