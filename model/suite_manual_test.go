package model

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txmq/txmq"
)

var by = By{Actor: "ann", Reason: "stock was booked by hand"}

func (r ConsumeRecord) isStatus(want Status) error {
	if r.Status != want {
		return errors.New("status " + string(r.Status) + ", want " + string(want))
	}
	return nil
}

var manualChecks = []check{
	{name: "Retry makes DEAD and FAIL due at once with one more attempt", run: func(t *testing.T, b *bundle) {
		for _, s := range []Status{Dead, Fail} {
			r := b.in(t, string(s), s)
			want(t, b.s.Retry(t.Context(), r, by))
			want(t, b.find(t, r.EventID).is(Fail, r.Version+1, 0, ""))
			if c, _ := b.claim(t, r.EventID, "w1"); c.Decision != Run || c.Lost {
				t.Errorf("Claim after Retry = %+v, want to run, with no worker lost", c)
			}
		}
		_, h := b.claim(t, "due", "w1")
		b.fail(t, h, true)
		want(t, b.s.Retry(t.Context(), b.find(t, "due"), by))
		if diff := cmp.Diff([]string{"due"}, b.dueIDs(t, 1000*minute)); diff != "" {
			t.Errorf("Due (-want +got):\n%s", diff)
		}
	}},
	{name: "Retry takes one run out of the count, and never below none", run: func(t *testing.T, b *bundle) {
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), RetryCnt: 2, Dead: true, Err: errNoStock}))
		for _, left := range []int{1, 0, 0} {
			want(t, b.s.Retry(t.Context(), b.find(t, "e"), by))
			if r := b.find(t, "e"); r.RetryCnt != left {
				t.Errorf("retry_cnt = %d, want %d", r.RetryCnt, left)
			}
		}
	}},
	{name: "Retry of what has lost its worker takes the mark away", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "dead")
		b.clock.Add(2 * minute)
		if swept, err := b.s.Sweep(t.Context(), 1); err != nil || len(swept) != 1 {
			t.Fatalf("Sweep = %d rows, %v", len(swept), err)
		}
		if r := b.find(t, "e"); !r.Lost() || r.Owner != "dead" {
			t.Errorf("swept row: lost %v, owner %q", r.Lost(), r.Owner)
		}
		want(t, b.s.Retry(t.Context(), b.find(t, "e"), by))
		if b.find(t, "e").Lost() {
			t.Error("the mark stayed")
		}
	}},
	{name: "Resolve makes DEAD and FAIL SUCCESS, and says who and why", run: func(t *testing.T, b *bundle) {
		for _, s := range []Status{Dead, Fail} {
			r := b.in(t, string(s), s)
			want(t, b.s.Resolve(t.Context(), r, by))
			after := b.find(t, r.EventID)
			want(t, after.is(Success, r.Version+1, r.RetryCnt, ""))
			if !strings.Contains(after.LastError, "ann") || !strings.Contains(after.LastError, by.Reason) {
				t.Errorf("last_error = %q", after.LastError)
			}
			if c, _ := b.claim(t, r.EventID, "w1"); c.Decision != Duplicate {
				t.Errorf("Claim = %v, want Duplicate", c.Decision)
			}
		}
	}},
	{name: "what is not DEAD or FAIL, or has moved, is left and not audited", run: func(t *testing.T, b *bundle) {
		act := map[string]func(ConsumeRecord) error{
			"Retry":   func(r ConsumeRecord) error { return b.s.Retry(t.Context(), r, by) },
			"Resolve": func(r ConsumeRecord) error { return b.s.Resolve(t.Context(), r, by) },
		}
		for name, do := range act {
			for _, s := range []Status{Processing, Success} {
				r := b.in(t, name+string(s), s)
				wantErr(t, name+" of "+string(s), do(r), txmq.ErrLeaseLost)
				want(t, b.find(t, r.EventID).is(r.Status, r.Version, r.RetryCnt, r.Owner))
			}
			r := b.in(t, name, Fail)
			_, h := b.claim(t, name, "w1")
			b.fail(t, h, false)
			wantErr(t, name+" of a row that moved", do(r), txmq.ErrLeaseLost)
		}
		if n := b.count(t, "SELECT COUNT(*) FROM t_audit"); n != 0 {
			t.Errorf("%d audit rows, want none", n)
		}
	}},
	{name: "each manual action leaves its line in t_audit", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Dead)
		want(t, b.s.Retry(t.Context(), r, by))
		want(t, b.s.Resolve(t.Context(), b.find(t, "e"), By{Actor: "bob", Reason: "订单 done"}))
		b.in(t, "other", Dead)
		got, err := b.s.Audit(t.Context(), "e", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		wantRows := []AuditEntry{
			{Actor: "ann", Action: "retry", Reason: by.Reason, EventID: "e", Consumer: handler, StateBefore: Dead, StateAfter: Fail, RetryCnt: 0, Version: 2},
			{Actor: "bob", Action: "resolve", Reason: "订单 done", EventID: "e", Consumer: handler, StateBefore: Fail, StateAfter: Success, RetryCnt: 0, Version: 3},
		}
		if diff := cmp.Diff(wantRows, got, cmpopts.IgnoreFields(AuditEntry{}, "ID", "CreatedAt")); diff != "" {
			t.Errorf("audit (-want +got):\n%s", diff)
		}
		b.wantUntil(t, "created_at", got[0].CreatedAt, 0)
		if all, err := b.s.Audit(t.Context(), "", got[0].ID, 10); err != nil || len(all) != 1 {
			t.Errorf("Audit after the first = %d rows, %v, want 1", len(all), err)
		}
	}},
	{name: "an actor and a reason are asked for", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Dead)
		for _, bad := range []By{{}, {Actor: " ", Reason: "r"}, {Actor: "a"}, {Actor: strings.Repeat("a", 256), Reason: "r"}, {Actor: "a", Reason: strings.Repeat("r", 2001)}} {
			var field *txmq.FieldError
			if err := b.s.Retry(t.Context(), r, bad); !errors.As(err, &field) {
				t.Errorf("Retry by %q = %v, want a FieldError", bad.Actor, err)
			}
		}
		want(t, b.find(t, "e").is(r.Status, r.Version, r.RetryCnt, ""))
	}},
	{name: "a message without event ID is not retried, and can be resolved", run: func(t *testing.T, b *bundle) {
		want(t, b.s.Bury(t.Context(), Failure{Arrival: arrival("missing_id:AC1:7F0"), Err: txmq.ErrMissingID, Body: []byte("body")}))
		r := b.find(t, "missing_id:AC1:7F0")
		if !r.Nameless() || b.in(t, "e", Dead).Nameless() {
			t.Errorf("Nameless = %v of a buried row", r.Nameless())
		}
		wantErr(t, "Retry", b.s.Retry(t.Context(), r, by), txmq.ErrMissingID)
		want(t, b.s.Resolve(t.Context(), r, by))
		want(t, b.find(t, r.EventID).isStatus(Success))
	}},
}
