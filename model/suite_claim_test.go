package model

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

var claimChecks = []check{
	{name: "Claim of an unseen event is PROCESSING and its owner's", run: func(t *testing.T, b *bundle) {
		c, _ := b.claim(t, "e", "w1")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 1}, c); diff != "" {
			t.Errorf("Claim (-want +got):\n%s", diff)
		}
		r := b.find(t, "e")
		want(t, r.is(Processing, 1, 0, "w1"))
		if diff := cmp.Diff(arrival("e").At, r.Position); diff != "" {
			t.Errorf("position (-want +got):\n%s", diff)
		}
		if hash := sha256.Sum256([]byte("body")); string(r.PayloadHash) != string(hash[:]) {
			t.Errorf("payload hash = %x, want %x", r.PayloadHash, hash)
		}
		b.wantUntil(t, "created_at", r.CreatedAt, 0)
		b.wantUntil(t, "updated_at", r.UpdatedAt, 0)
	}},
	{name: "Claim is seen by others at once", needs: two, run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		c, _ := b.claim(t, "e", "w2")
		if c.Decision != InProgress {
			t.Errorf("Claim by another = %v, want InProgress", c.Decision)
		}
	}},
	{name: "Claim's lease is over by the database's clock", run: func(t *testing.T, b *bundle) {
		b.clock.Add(-48 * time.Hour)
		b.claim(t, "e", "w1")
		r := b.find(t, "e")
		b.wantUntil(t, "lease_until", r.LeaseUntil, minute)
		if r.Rest <= 50*time.Second || r.Rest > minute {
			t.Errorf("Rest = %v, want just under a minute", r.Rest)
		}
		b.clock.Add(minute)
		if r := b.find(t, "e"); !r.LeaseOver() || r.Rest > 0 || r.Rest < -10*time.Second {
			t.Errorf("a minute later: LeaseOver %v, Rest %v, want true, just under 0", r.LeaseOver(), r.Rest)
		}
	}},
	{name: "Claim takes FAIL, which is always due for a delivery", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Fail)
		b.wantUntil(t, "next_retry_at", r.NextRetryAt, minute)
		c, _ := b.claim(t, "e", "w2")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 3, Seen: Fail, RetryCnt: 1}, c); diff != "" {
			t.Errorf("Claim (-want +got):\n%s", diff)
		}
		r = b.find(t, "e")
		want(t, r.is(Processing, 3, 1, "w2"))
		b.wantUntil(t, "lease_until", r.LeaseUntil, minute)
		if !r.NextRetryAt.IsZero() {
			t.Errorf("next_retry_at = %v, want NULL", r.NextRetryAt)
		}
	}},
	{name: "Version and RetryCnt rise with each change of hands", run: func(t *testing.T, b *bundle) {
		for i := range 4 {
			c, h := b.claim(t, "e", "w1")
			if c.Decision != Run || c.RetryCnt != i || c.Version != int64(2*i+1) {
				t.Fatalf("Claim %d = %+v, want RetryCnt %d, Version %d", i, c, i, 2*i+1)
			}
			err := b.s.Fail(t.Context(), Failure{
				Arrival: arrival("e"), Owner: h.Owner, Version: h.Version, RetryCnt: c.RetryCnt, Err: errors.New("x"),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}},
	{name: "Claim of SUCCESS is Duplicate, of DEAD is Buried, and neither changes", run: func(t *testing.T, b *bundle) {
		for status, decision := range map[Status]Decision{Success: Duplicate, Dead: Buried} {
			before := b.in(t, string(status), status)
			b.clock.Add(time.Hour)
			if c, _ := b.claim(t, string(status), "w2"); c.Decision != decision || c.Seen != status {
				t.Errorf("Claim of %s = %+v, want decision %v", status, c, decision)
			}
			if diff := cmp.Diff(before, b.find(t, string(status)), columnsOnly); diff != "" {
				t.Errorf("record changed (-before +after):\n%s", diff)
			}
		}
	}},
	{name: "Claim of a live lease is InProgress, with its rest", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		b.clock.Add(20 * time.Second)
		c, _ := b.claim(t, "e", "w2")
		if c.Decision != InProgress || c.Rest <= 30*time.Second || c.Rest > 40*time.Second {
			t.Errorf("Claim = %+v, want InProgress with 40 s of rest", c)
		}
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "B20 a stuck PROCESSING row is taken over once, a live one is not", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		if c, _ := b.claim(t, "e", "w2"); c.Decision != InProgress {
			t.Errorf("with a live lease: %v, want InProgress", c.Decision)
		}
		b.clock.Add(minute + time.Second)
		c, h := b.claim(t, "e", "w2")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 2, Seen: Processing, RetryCnt: 1, TookOver: true, Lost: true, LostOwner: "w1"}, c); diff != "" {
			t.Errorf("take-over (-want +got):\n%s", diff)
		}
		if c, _ := b.claim(t, "e", "w3"); c.Decision != InProgress {
			t.Errorf("third worker: %v, want InProgress", c.Decision)
		}
		want(t, b.succeed(t, h))
		want(t, b.find(t, "e").is(Success, 2, 1, ""))
	}},
	{name: "Claim waits for an open transaction on the key at most wait, then is InProgress", needs: two, run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c, _ := b.claim(t, "e", "w2")
		if took := time.Since(start); c.Decision != InProgress || took > 4*short {
			t.Errorf("Claim = %v after %v, want InProgress within about %v", c.Decision, took, short)
		}
		want(t, tx.Commit(t.Context()))
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
	}},
	{name: "a wait on one connection is not left on it", needs: server, run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		b.claim(t, "e", "w2")
		if n := b.count(t, "SELECT @@SESSION.innodb_lock_wait_timeout"); n != 50 {
			t.Errorf("innodb_lock_wait_timeout = %d, want 50", n)
		}
	}},
	{name: "B32 another body under one event ID is a mismatch, never a duplicate", run: func(t *testing.T, b *bundle) {
		other := arrival("e")
		other.PayloadHash = sha256.Sum256([]byte("another body"))
		for _, status := range []Status{Processing, Success, Fail, Dead} {
			exec(t, b.db, "DELETE FROM t_msg_consume")
			b.in(t, "e", status)
			before := b.find(t, "e")
			_, err := b.s.Claim(t.Context(), other, "w2", minute, short)
			wantErr(t, "Claim on "+string(status), err, txmq.ErrPayloadMismatch)
			tx := b.begin(t)
			_, err = tx.Apply(t.Context(), other, short)
			wantErr(t, "Apply on "+string(status), err, txmq.ErrPayloadMismatch)
			tx.Rollback()
			want(t, b.find(t, "e").is(before.Status, before.Version, before.RetryCnt, before.Owner))
		}
		buried := Failure{Arrival: other, Err: txmq.ErrPayloadMismatch, Body: []byte("another body")}
		buried.EventID = "mismatch:order-paid:b-0:3:42"
		want(t, b.s.Bury(t.Context(), buried))
		if r := b.find(t, buried.EventID); r.Status != Dead || r.LastError == "" {
			t.Errorf("buried = %s %q, want DEAD with the reason", r.Status, r.LastError)
		}
	}},
	{name: "an event in two handlers runs in each", run: func(t *testing.T, b *bundle) {
		b.apply(t, "e")
		second := arrival("e")
		second.Consumer = "audit:order-paid"
		c, err := b.s.Claim(t.Context(), second, "w1", minute, short)
		if err != nil || c.Decision != Run {
			t.Errorf("Claim in another handler = %v, %v, want Run", c.Decision, err)
		}
	}},
}

// between makes interfere run after a claim has looked at the row and before it
// takes it, on the claim's own connection if it wants to.
func (b *bundle) between(interfere func(round int, c conn)) {
	waiting, calls := b.s.d.waiting, 0
	b.s.d.waiting = func(ctx context.Context, c conn, wait time.Duration, do func(string) error) error {
		if calls++; calls%2 == 0 {
			interfere(calls/2, c)
		}
		return waiting(ctx, c, wait, do)
	}
}

var takeOverChecks = []check{
	{name: "a lease that is renewed between the look and the take is not taken", needs: two, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		b.clock.Add(2 * minute)
		heart, err := b.s.Heart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer heart.Close()
		b.between(func(int, conn) { want(t, heart.Extend(t.Context(), h, minute)) })
		if c, _ := b.claim(t, "e", "w2"); c.Decision != InProgress {
			t.Errorf("Claim = %+v, want InProgress", c)
		}
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "a row that finishes between the look and the take is a duplicate", needs: two, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		b.clock.Add(2 * minute)
		b.between(func(int, conn) { want(t, b.succeed(t, h)) })
		if c, _ := b.claim(t, "e", "w2"); c.Decision != Duplicate {
			t.Errorf("Claim = %+v, want Duplicate", c)
		}
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
	}},
	{name: "a row that another takes between the look and the take is in progress", needs: two, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		rival := b.store(t, Config{Clock: b.clock})
		b.between(func(int, conn) {
			c, err := rival.Claim(t.Context(), arrival("e"), "rival", minute, short)
			if err != nil || c.Decision != Run {
				t.Errorf("rival = %v, %v", c, err)
			}
		})
		if c, _ := b.claim(t, "e", "w2"); c.Decision != InProgress {
			t.Errorf("Claim = %+v, want InProgress", c)
		}
		want(t, b.find(t, "e").is(Processing, 3, 1, "rival"))
	}},
	{name: "a row that is taken, fails and is FAIL again is not taken by an old look", needs: two, run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Fail)
		rival := b.store(t, Config{Clock: b.clock})
		b.between(func(round int, _ conn) {
			if round > 1 {
				return
			}
			c, err := rival.Claim(t.Context(), arrival("e"), "rival", minute, short)
			if err != nil {
				t.Fatal(err)
			}
			b.fail(t, Held{EventID: "e", Owner: "rival", Version: c.Version}, false)
		})
		c, _ := b.claim(t, "e", "w2")
		if c.Decision != Run || c.Version != r.Version+3 {
			t.Errorf("Claim = %+v, want Run with version %d", c, r.Version+3)
		}
	}},
	{name: "a row that goes between the insert and the look is inserted", needs: two, run: func(t *testing.T, b *bundle) {
		b.apply(t, "e")
		insert := b.s.d.insert
		b.s.d.insert = func(ctx context.Context, c conn, q string, args []any) (bool, error) {
			fresh, err := insert(ctx, c, q, args)
			if !fresh {
				exec(t, b.db, "DELETE FROM t_msg_consume")
			}
			return fresh, err
		}
		if c, _ := b.claim(t, "e", "w2"); c.Decision != Run || c.Version != 1 {
			t.Errorf("Claim = %+v, want a fresh Run", c)
		}
	}},
	{name: "a row that keeps changing hands is an error in the end", needs: two, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		b.between(func(int, conn) { exec(t, b.db, "UPDATE t_msg_consume SET version = version + 1") })
		_, err := b.s.Claim(t.Context(), arrival("e"), "w2", minute, short)
		wantErr(t, "Claim", err, errMoving)
	}},
}
