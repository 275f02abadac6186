package model

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

// kept reads what a DEAD row keeps of its message.
func (b *bundle) kept(t *testing.T, event string) (body, properties []byte) {
	t.Helper()
	pool, err := b.db.DB()
	if err != nil {
		t.Fatal(err)
	}
	want(t, pool.QueryRowContext(t.Context(), "SELECT body, properties FROM t_msg_consume WHERE event_id = ?", event).Scan(&body, &properties))
	return body, properties
}

var failChecks = []check{
	{name: "Fail of an unseen event is FAIL, due after RetryIn", run: func(t *testing.T, b *bundle) {
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), RetryIn: 90 * time.Second, Err: errNoStock, Body: []byte("body")}))
		r := b.find(t, "e")
		want(t, r.is(Fail, 1, 0, ""))
		b.wantUntil(t, "next_retry_at", r.NextRetryAt, 90*time.Second)
		if r.LastError != "no stock" || !r.LeaseUntil.IsZero() {
			t.Errorf("last_error %q, lease %v", r.LastError, r.LeaseUntil)
		}
		if diff := cmp.Diff(arrival("e").At, r.Position); diff != "" {
			t.Errorf("position (-want +got):\n%s", diff)
		}
		if body, _ := b.kept(t, "e"); body != nil {
			t.Errorf("FAIL keeps the body %q, want none", body)
		}
	}},
	{name: "Fail of an unseen event that has a row by now is ErrLeaseLost", run: func(t *testing.T, b *bundle) {
		for _, status := range []Status{Processing, Success, Fail, Dead} {
			before := b.in(t, string(status), status)
			err := b.s.Fail(t.Context(), Failure{Arrival: arrival(string(status)), Dead: true, Err: errNoStock})
			wantErr(t, "Fail on "+string(status), err, txmq.ErrLeaseLost)
			want(t, b.find(t, string(status)).is(before.Status, before.Version, before.RetryCnt, before.Owner))
		}
	}},
	{name: "Fail by owner and version is FAIL", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		b.fail(t, h, false)
		r := b.find(t, "e")
		want(t, r.is(Fail, 2, 0, ""))
		b.wantUntil(t, "next_retry_at", r.NextRetryAt, minute)
		if r.LastError != "no stock" || !r.LeaseUntil.IsZero() {
			t.Errorf("last_error %q, lease %v", r.LastError, r.LeaseUntil)
		}
	}},
	{name: "Fail of a row that moved is ErrLeaseLost, and spares SUCCESS", run: func(t *testing.T, b *bundle) {
		whenMoved(t, b, func(t *testing.T, h Held) error {
			a := arrival(h.EventID)
			a.Consumer = h.Consumer
			return b.s.Fail(t.Context(), Failure{Arrival: a, Owner: h.Owner, Version: h.Version, RetryCnt: 9, Dead: true, Err: errNoStock})
		})
	}},
	{name: "B82 a late Fail of an Apply that did commit spares SUCCESS", run: func(t *testing.T, b *bundle) {
		b.apply(t, "fresh")
		wantErr(t, "Fail by version 0", b.s.Fail(t.Context(), Failure{Arrival: arrival("fresh"), Err: errNoStock}), txmq.ErrLeaseLost)
		wantErr(t, "Fail by version 1", b.s.Fail(t.Context(), Failure{Arrival: arrival("fresh"), Version: 1, Err: errNoStock}), txmq.ErrLeaseLost)
		want(t, b.find(t, "fresh").is(Success, 1, 0, ""))
		b.in(t, "e", Fail)
		c := b.apply(t, "e")
		err := b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), Version: c.Version, RetryCnt: c.RetryCnt, Err: errNoStock})
		wantErr(t, "Fail by the version seen", err, txmq.ErrLeaseLost)
		want(t, b.find(t, "e").is(Success, 3, 1, ""))
	}},
	{name: "an Apply's Fail spares a live lease", run: func(t *testing.T, b *bundle) {
		b.claim(t, "e", "w1")
		err := b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), Version: 1, Err: errNoStock})
		wantErr(t, "Fail", err, txmq.ErrLeaseLost)
		want(t, b.find(t, "e").is(Processing, 1, 0, "w1"))
	}},
	{name: "B38 Fail sets values back to zero", run: func(t *testing.T, b *bundle) {
		r := b.in(t, "e", Fail)
		for _, retries := range []int{3, 0} {
			f := Failure{Arrival: arrival("e"), Version: r.Version, RetryCnt: retries, Err: nil}
			want(t, b.s.Fail(t.Context(), f))
			r = b.find(t, "e")
			if r.RetryCnt != retries || r.LastError != "" {
				t.Errorf("retry_cnt %d, last_error %q, want %d and none", r.RetryCnt, r.LastError, retries)
			}
		}
	}},
	{name: "DEAD keeps body and properties, where they are given", run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		body := []byte{0, 0xff, '\'', '\\', '"'}
		want(t, b.s.Fail(t.Context(), Failure{
			Arrival: arrival("e"), Owner: h.Owner, Version: h.Version, Dead: true, Err: errNoStock,
			Body: body, Properties: map[string]string{"k": "ü'\\"},
		}))
		want(t, b.find(t, "e").is(Dead, 2, 0, ""))
		gotBody, properties := b.kept(t, "e")
		if string(gotBody) != string(body) || string(properties) != `{"k":"ü'\\"}` {
			t.Errorf("kept %q, %s", gotBody, properties)
		}
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("f"), Dead: true, Err: errNoStock}))
		if body, properties := b.kept(t, "f"); body != nil || properties != nil {
			t.Errorf("kept %q, %q, want NULL", body, properties)
		}
	}},
	{name: "last_error is cut at 2000 characters, and any bytes fit", run: func(t *testing.T, b *bundle) {
		for i, text := range []string{strings.Repeat("漢", 3000), strings.Repeat("😀", 2000), "a\xffb\x00c'\\", strings.Repeat("\xff\xfea", 1500)} {
			event := string(rune('a' + i))
			want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival(event), Err: errors.New(text)}))
			if got, wantText := b.find(t, event).LastError, cut(errors.New(text)); got != wantText {
				t.Errorf("last_error %d has %d bytes, want %d", i, len(got), len(wantText))
			}
		}
	}},
	{name: "Bury is DEAD once, and no error the second time", run: func(t *testing.T, b *bundle) {
		f := Failure{Arrival: arrival("no-id:order-paid:b-0:3:42"), Err: txmq.ErrMissingID, Body: []byte("x")}
		want(t, b.s.Bury(t.Context(), f))
		want(t, b.s.Bury(t.Context(), f))
		r := b.find(t, f.EventID)
		want(t, r.is(Dead, 0, 0, ""))
		if n := b.count(t, "SELECT COUNT(*) FROM t_msg_consume"); n != 1 || r.LastError == "" {
			t.Errorf("%d rows, last_error %q, want 1 and the reason", n, r.LastError)
		}
	}},
	{name: "Bury leaves a row that is there as it is", run: func(t *testing.T, b *bundle) {
		b.apply(t, "e")
		want(t, b.s.Bury(t.Context(), Failure{Arrival: arrival("e"), Err: errNoStock}))
		want(t, b.find(t, "e").is(Success, 1, 0, ""))
	}},
}

var readChecks = []check{
	{name: "Find of nothing is ErrNotFound", run: func(t *testing.T, b *bundle) {
		b.apply(t, "e")
		b.absent(t, "f")
		_, err := b.s.Find(t.Context(), "e", "other")
		wantErr(t, "Find in another handler", err, txmq.ErrNotFound)
	}},
	{name: "Records filters and pages", run: func(t *testing.T, b *bundle) {
		for _, event := range []string{"a", "b", "c"} {
			b.in(t, event, Fail)
		}
		b.clock.Add(time.Hour)
		b.in(t, "d", Success)
		other := Failure{Arrival: arrival("a"), Err: errNoStock}
		other.Consumer = "audit"
		want(t, b.s.Fail(t.Context(), other))
		ids := func(f Filter) (got string) {
			t.Helper()
			list, err := b.s.Records(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				got += r.EventID
			}
			return got
		}
		first, err := b.s.Records(t.Context(), Filter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			f    Filter
			want string
		}{
			{Filter{}, "abcda"},
			{Filter{Status: Fail}, "abca"},
			{Filter{Status: Fail, Older: time.Minute}, "abc"},
			{Filter{Older: 2 * time.Hour}, ""},
			{Filter{Consumer: "audit"}, "a"},
			{Filter{EventID: "a"}, "aa"},
			{Filter{EventID: "a", Consumer: handler, Status: Fail}, "a"},
			{Filter{Limit: 2}, "ab"},
			{Filter{After: first[0].ID, Limit: 2}, "bc"},
			{Filter{Status: Dead}, ""},
		} {
			if got := ids(c.f); got != c.want {
				t.Errorf("Records(%+v) = %q, want %q", c.f, got, c.want)
			}
		}
		for _, limit := range []int{-1, 1001} {
			var field *txmq.FieldError
			if _, err := b.s.Records(t.Context(), Filter{Limit: limit}); !errors.As(err, &field) {
				t.Errorf("Records(limit %d) = %v, want a FieldError", limit, err)
			}
		}
	}},
	{name: "B40 Now and every stored time are UTC", run: func(t *testing.T, b *bundle) {
		now, err := b.s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Since(now).Abs(); off > 10*time.Second || now.Location() != time.UTC {
			t.Errorf("Now = %v, %v from this machine's UTC", now, off)
		}
		_, h := b.claim(t, "e", "w1")
		r := b.find(t, "e")
		b.wantUntil(t, "created_at", r.CreatedAt, 0)
		b.wantUntil(t, "lease_until", r.LeaseUntil, minute)
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("e"), Owner: h.Owner, Version: h.Version, RetryIn: time.Hour, Err: errNoStock}))
		b.wantUntil(t, "next_retry_at", b.find(t, "e").NextRetryAt, time.Hour)
		var viaGorm ConsumeRecord
		want(t, b.db.First(&viaGorm).Error)
		if diff := cmp.Diff(b.find(t, "e").NextRetryAt, viaGorm.NextRetryAt); diff != "" {
			t.Errorf("read through gorm (-want +got):\n%s", diff)
		}
		var due int64
		want(t, b.db.Model(&ConsumeRecord{}).Where("next_retry_at = ?", viaGorm.NextRetryAt).Count(&due).Error)
		if due != 1 {
			t.Errorf("a time read from the table finds %d rows, want 1", due)
		}
	}},
	{name: "the clock's offset moves Now to and fro", run: func(t *testing.T, b *bundle) {
		for _, d := range []time.Duration{24 * time.Hour, -72 * time.Hour, 48*time.Hour + 1500*time.Millisecond} {
			before, err := b.s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b.clock.Add(d)
			after, err := b.s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if off := after.Sub(before) - d; off < 0 || off > 5*time.Second {
				t.Errorf("Now moved by %v, want %v", after.Sub(before), d)
			}
		}
	}},
	{name: "errors carry the event and the operation", run: func(t *testing.T, b *bundle) {
		_, err := b.s.Find(t.Context(), "e-1", handler)
		var op *txmq.OpError
		if !errors.As(err, &op) || op.EventID != "e-1" || op.Op != "find" {
			t.Errorf("Find = %v, want an OpError of find e-1", err)
		}
	}},
}
