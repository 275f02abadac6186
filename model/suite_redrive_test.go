package model

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

func (b *bundle) dueIDs(t *testing.T, stale time.Duration) (ids []string) {
	t.Helper()
	rows, err := b.s.Due(t.Context(), stale, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		ids = append(ids, r.EventID)
	}
	return ids
}

func (b *bundle) redrive(t *testing.T, r ConsumeRecord) bool {
	t.Helper()
	ok, err := b.s.Redrive(t.Context(), r, minute, 10*minute)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

var redriveChecks = []check{
	{name: "Due lists FAIL rows that are over by stale, and nothing else", run: func(t *testing.T, b *bundle) {
		for _, s := range []Status{Processing, Success, Fail, Dead} {
			b.in(t, string(s), s) // FAIL is due in a minute
		}
		b.clock.Add(2*minute - 2*time.Second)
		if ids := b.dueIDs(t, minute); ids != nil {
			t.Errorf("Due = %v, want none yet", ids)
		}
		b.clock.Add(4 * time.Second)
		if diff := cmp.Diff([]string{"FAIL"}, b.dueIDs(t, minute)); diff != "" {
			t.Errorf("Due (-want +got):\n%s", diff)
		}
	}},
	{name: "B88 of many that redrive one row in an interval one may, and the next may after it", needs: two, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		b.clock.Add(3 * minute)
		r := b.find(t, "e")
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if ok, err := b.s.Redrive(t.Context(), r, minute, 10*minute); err != nil {
					t.Error(err)
				} else if ok {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d redrives, want 1", won.Load())
		}
		after := b.find(t, "e")
		if !after.Redriven() || after.Version != r.Version || after.UpdatedAt != r.UpdatedAt || after.Idle < 2*minute {
			t.Errorf("after a redrive: %+v; want it marked and otherwise as it was", after)
		}
		b.wantUntil(t, "next_retry_at", after.NextRetryAt, 10*minute)
		b.clock.Add(10 * minute)
		if b.redrive(t, after) {
			t.Error("a second redrive before stale is over")
		}
		b.clock.Add(2 * minute)
		if !b.redrive(t, after) {
			t.Error("no second redrive after the interval")
		}
	}},
	{name: "a claim of a redriven row says so", run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		if c, h := b.claim(t, "e", "w1"); c.Redriven {
			t.Error("Claim says redriven before it was")
		} else {
			b.fail(t, h, false)
		}
		b.clock.Add(3 * minute)
		b.redrive(t, b.find(t, "e"))
		tx := b.begin(t)
		if c, err := tx.Apply(t.Context(), arrival("e"), short); err != nil || !c.Redriven {
			t.Errorf("Apply = %+v, %v, want Redriven", c, err)
		}
		tx.Rollback()
		if c, _ := b.claim(t, "e", "w1"); !c.Redriven {
			t.Error("Claim does not say that it was redriven")
		}
	}},
	{name: "a row that a handler's transaction holds is not redriven, nor waited for", needs: two, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		b.clock.Add(3 * minute)
		r := b.find(t, "e")
		tx := b.begin(t)
		if c, err := tx.Apply(t.Context(), arrival("e"), short); err != nil || c.Decision != Run {
			t.Fatalf("Apply = %+v, %v", c, err)
		}
		if b.redrive(t, r) {
			t.Error("redrove a row under a handler")
		}
		if ok, err := b.s.Postpone(t.Context(), r, minute); ok || err != nil {
			t.Errorf("Postpone of a row under a handler = %v, %v", ok, err)
		}
		tx.Rollback()
		if !b.redrive(t, r) {
			t.Error("no redrive after the rollback")
		}
	}},
	{name: "a postponed row is due later, and not marked", run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		b.clock.Add(3 * minute)
		r := b.find(t, "e")
		if ok, err := b.s.Postpone(t.Context(), r, 0); !ok || err != nil {
			t.Fatalf("Postpone = %v, %v", ok, err)
		}
		if ids := b.dueIDs(t, minute); ids != nil {
			t.Errorf("Due = %v right after", ids)
		}
		b.clock.Add(minute + time.Second)
		if diff := cmp.Diff([]string{"e"}, b.dueIDs(t, minute)); diff != "" {
			t.Errorf("Due (-want +got):\n%s", diff)
		}
		after := b.find(t, "e")
		if after.Redriven() || after.Version != r.Version || after.UpdatedAt != r.UpdatedAt {
			t.Errorf("after Postpone: %+v, want it as it was", after)
		}
		b.redrive(t, after)
		if ok, err := b.s.Postpone(t.Context(), after, 0); !ok || err != nil || !b.find(t, "e").Redriven() {
			t.Errorf("Postpone after a redrive = %v, %v; want the mark to stay", ok, err)
		}
		_, _ = b.claim(t, "e", "w1")
		if ok, err := b.s.Postpone(t.Context(), after, 0); ok || err != nil {
			t.Errorf("Postpone of PROCESSING = %v, %v", ok, err)
		}
	}},
	{name: "a FAIL row whose message is gone becomes DEAD, with its attempts", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Fail)
		b.clock.Add(3 * minute)
		b.redrive(t, r)
		want(t, b.s.Fail(t.Context(), Failure{Arrival: r.Arrival(), Version: r.Version, RetryCnt: r.RetryCnt, Dead: true, Err: errNoStock}))
		after := b.find(t, "e")
		if after.Status != Dead || after.RetryCnt != r.RetryCnt || after.LastError != errNoStock.Error() || after.Version != r.Version+1 {
			t.Errorf("row is %+v, want DEAD with the reason", after)
		}
	}},
	{name: "Redrive leaves a row that moved", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Fail)
		b.clock.Add(3 * minute)
		_, h := b.claim(t, "e", "w1")
		if b.redrive(t, r) {
			t.Error("redrove a PROCESSING row")
		}
		b.fail(t, h, false)
		b.clock.Add(3 * minute)
		if b.redrive(t, r) {
			t.Error("redrove a row that has failed again since")
		}
	}},
	{name: "the body of a DEAD row stays through a retry, and goes with SUCCESS", run: func(t *testing.T, b *bundle) {
		for name, finish := range map[string]func(){
			"Succeed": func() { _, h := b.claim(t, "Succeed", "w1"); want(t, b.succeed(t, h)) },
			"Apply":   func() { b.apply(t, "Apply") },
			"Resolve": func() { want(t, b.s.Resolve(t.Context(), b.find(t, "Resolve"), by)) },
		} {
			props := map[string]string{"a": "b"}
			want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival(name), Dead: true, Err: errNoStock, Body: []byte("body"), Properties: props}))
			want(t, b.s.Retry(t.Context(), b.find(t, name), by))
			_, h := b.claim(t, name, "w1")
			b.fail(t, h, false) // FAIL keeps none of its own
			p, err := b.s.Payload(t.Context(), b.find(t, name))
			if err != nil || !bytes.Equal(p.Body, []byte("body")) || !cmp.Equal(p.Properties, props) {
				t.Errorf("Payload = %q %v, %v, want what DEAD kept", p.Body, p.Properties, err)
			}
			finish()
			want(t, b.find(t, name).isStatus(Success))
			_, err = b.s.Payload(t.Context(), b.find(t, name))
			wantErr(t, "Payload of SUCCESS by "+name, err, txmq.ErrNotFound)
		}
	}},
	{name: "Fail keeps where the message lies that failed, and a redriven one's body", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		copied := arrival("e")
		copied.At = Position{Topic: "order-paid", BrokerName: "b-1", QueueID: 0, QueueOffset: 7, MsgID: "AC1", OffsetMsgID: "7F1"}
		want(t, b.s.Fail(t.Context(), Failure{Arrival: copied, Owner: h.Owner, Version: h.Version, Err: errNoStock, Keep: true, Body: []byte("body")}))
		r := b.find(t, "e")
		if diff := cmp.Diff(copied.At, r.Position); diff != "" {
			t.Errorf("position (-want +got):\n%s", diff)
		}
		if p, err := b.s.Payload(t.Context(), r); err != nil || string(p.Body) != "body" {
			t.Errorf("Payload = %q, %v", p.Body, err)
		}
	}},
	{name: "a record gives its arrival back", run: func(t *testing.T, b *bundle) {
		if diff := cmp.Diff(arrival("e"), b.in(t, "e", Fail).Arrival()); diff != "" {
			t.Errorf("Arrival (-want +got):\n%s", diff)
		}
	}},
}
