package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

// strictly begins, and applies an event for worker-1.
func (b *bundle) strictly(t tb, event string) (*Tx, Claimed, Held) {
	t.Helper()
	tx := b.begin(t)
	c, h, err := tx.ApplyStrict(t.Context(), arrival(event), "worker-1", minute, short)
	if err != nil {
		t.Fatalf("ApplyStrict(%s): %v", event, err)
	}
	return tx, c, h
}

var strictChecks = []check{
	{name: "ApplyStrict is PROCESSING until Succeed, and SUCCESS after the COMMIT", run: func(t *testing.T, b *bundle) {
		tx, c, h := b.strictly(t, "e")
		if diff := cmp.Diff(Claimed{Decision: Run}, c); diff != "" {
			t.Errorf("ApplyStrict (-want +got):\n%s", diff)
		}
		var status string
		want(t, tx.DB().Raw("SELECT status FROM t_msg_consume WHERE event_id = 'e' AND owner = 'worker-1'").Scan(&status).Error)
		if status != string(Processing) {
			t.Errorf("status inside = %q, want PROCESSING of worker-1", status)
		}
		want(t, tx.Succeed(t.Context(), h))
		want(t, tx.Commit(t.Context()))
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
		if r := b.find(t, "e"); !r.LeaseUntil.IsZero() {
			t.Errorf("lease = %v, want none", r.LeaseUntil)
		}
	}},
	{name: "nobody sees ApplyStrict before the COMMIT", needs: two, run: func(t *testing.T, b *bundle) {
		b.strictly(t, "e")
		b.absent(t, "e")
	}},
	{name: "ApplyStrict that is rolled back leaves what was there", run: func(t *testing.T, b *bundle) {
		tx, c, _ := b.strictly(t, "e")
		tx.Rollback()
		b.absent(t, "e")
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), Version: c.Version, RetryCnt: c.RetryCnt, Err: errNoStock}))
		tx, c, _ = b.strictly(t, "e")
		tx.Rollback()
		want(t, b.find(t, "e").is(Fail, 1, 0, ""))
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), Version: c.Version, RetryCnt: c.RetryCnt, Dead: true, Err: errNoStock}))
		want(t, b.find(t, "e").is(Dead, 2, 1, ""))
	}},
	{name: "ApplyStrict takes FAIL", run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		tx, c, h := b.strictly(t, "e")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 2, Seen: Fail, RetryCnt: 1}, c); diff != "" {
			t.Errorf("ApplyStrict (-want +got):\n%s", diff)
		}
		want(t, tx.Succeed(t.Context(), h))
		want(t, tx.Commit(t.Context()))
		want(t, b.find(t, "e").is(Success, 3, 1, ""))
	}},
	{name: "ApplyStrict takes PROCESSING whose lease is over, and leaves a live one alone", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		tx, c, _ := b.strictly(t, "e")
		tx.Rollback()
		if c.Decision != InProgress || c.Rest <= 50*time.Second {
			t.Errorf("ApplyStrict = %+v, want InProgress with a minute of rest", c)
		}
		b.clock.Add(minute + time.Second)
		tx, c, h := b.strictly(t, "e")
		if diff := cmp.Diff(Claimed{Decision: Run, Version: 1, Seen: Processing, RetryCnt: 1, TookOver: true, Lost: true, LostOwner: "w1"}, c); diff != "" {
			t.Errorf("ApplyStrict (-want +got):\n%s", diff)
		}
		want(t, tx.Succeed(t.Context(), h))
		want(t, tx.Commit(t.Context()))
		want(t, b.find(t, "e").is(Success, 2, 1, ""))
	}},
	{name: "ApplyStrict of SUCCESS is Duplicate, of DEAD is Buried", run: func(t *testing.T, b *bundle) {
		for status, decision := range map[Status]Decision{Success: Duplicate, Dead: Buried} {
			b.in(t, string(status), status)
			tx, c, _ := b.strictly(t, string(status))
			tx.Rollback()
			if c.Decision != decision {
				t.Errorf("ApplyStrict of %s = %+v, want decision %v", status, c, decision)
			}
		}
	}},
	{name: "a COMMIT past the guard leaves PROCESSING, which can be failed or taken over", run: func(t *testing.T, b *bundle) {
		tx, _, h := b.strictly(t, "e")
		_, err := tx.conn().ExecContext(t.Context(), "COMMIT")
		want(t, err)
		tx.Rollback()
		want(t, b.find(t, "e").is(Processing, 1, 0, "worker-1"))
		b.fail(t, h, false)
		want(t, b.find(t, "e").is(Fail, 2, 0, ""))

		tx, _, _ = b.strictly(t, "f")
		_, err = tx.conn().ExecContext(t.Context(), "COMMIT")
		want(t, err)
		tx.Rollback()
		b.clock.Add(minute + time.Second)
		if c := b.apply(t, "f"); c.Decision != Run || !c.TookOver {
			t.Errorf("Apply = %+v, want it taken over", c)
		}
	}},
	{name: "a ROLLBACK past the guard leaves nothing for Succeed", run: func(t *testing.T, b *bundle) {
		tx, _, h := b.strictly(t, "e")
		_, err := tx.conn().ExecContext(t.Context(), "ROLLBACK")
		want(t, err)
		wantErr(t, "Succeed", tx.Succeed(t.Context(), h), txmq.ErrLeaseLost)
		tx.Rollback()
		b.absent(t, "e")
	}},
	{name: "ApplyStrict wants an owner", run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		if _, _, err := tx.ApplyStrict(t.Context(), arrival("e"), "", minute, short); err == nil {
			t.Error("ApplyStrict without an owner = nil")
		}
	}},
}
