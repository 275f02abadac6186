package model

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq"
)

// alike are keys that a careless column takes for one another, cuts or refuses.
var alike = []string{
	"Evt-A", "evt-a", "Evt-A ", "Evt-A\t", "e", "é", "e\u0301", "E", "ß", "ss", "ﬀ", "ff",
	"0", "00", "0.0", "1e1", "10", "Evt-A\x00", "\x00", "'", `\`, `\'`, `"`, "`", "%", "_", "?", "a\nb", "😀", "\u200b",
	"\xff", "\xfe\xff", "caf\xe9", strings.Repeat("x", 64) + "123456", strings.Repeat("x", 64) + "654321", strings.Repeat("é", 127),
	strings.Repeat("y", 255), strings.Repeat("y", 254),
}

// keys are all of them, or a few where nothing about text differs.
func (b *bundle) keys() []string {
	if b.same {
		return alike[:6]
	}
	return alike
}

var keyChecks = []check{
	{name: "B29 keys are compared byte by byte", run: func(t *testing.T, b *bundle) {
		for _, key := range b.keys() {
			if c := b.apply(t, key); c.Decision != Run {
				t.Errorf("Apply(%q) = %+v, want Run", key, c)
			}
		}
		for _, key := range b.keys() {
			if r := b.find(t, key); r.EventID != key || r.Status != Success {
				t.Errorf("Find(%q) = %q %s", key, r.EventID, r.Status)
			}
			if c, _ := b.claim(t, key, "w1"); c.Decision != Duplicate {
				t.Errorf("Claim(%q) = %+v, want Duplicate", key, c)
			}
		}
	}},
	{name: "B29 attempts, topics and events of the log too", run: func(t *testing.T, b *bundle) {
		for _, key := range b.keys() {
			if err := b.log(t, Attempt{ID: key, Topic: key, EventID: key, Group: key}); err != nil {
				t.Errorf("Log(%q) = %v", key, err)
			}
		}
		for _, key := range b.keys() {
			if e, err := b.look(t, key); err != nil || e.Attempt != key || e.EventID != key || e.Topic != key {
				t.Errorf("Look(%q) = %+v, %v", key, e, err)
			}
		}
	}},
	{name: "B29 handler names, owners and positions too", run: func(t *testing.T, b *bundle) {
		for _, key := range b.keys() {
			a := arrival("e")
			a.Consumer, a.At.Topic, a.At.BrokerName, a.At.MsgID, a.At.OffsetMsgID = key, key, key, key, key
			owner := key
			c, err := b.s.Claim(t.Context(), a, owner, minute, short)
			if err != nil || c.Decision != Run {
				t.Errorf("Claim(%q) = %+v, %v", key, c, err)
				continue
			}
			r, err := b.s.Find(t.Context(), "e", key)
			if err != nil || r.Consumer != key || r.Owner != owner || r.Position != a.At {
				t.Errorf("Find(%q) = %+v, %v", key, r, err)
			}
			tx := b.begin(t)
			want(t, tx.Succeed(t.Context(), Held{EventID: "e", Consumer: key, Owner: owner, Version: 1}))
			want(t, tx.Commit(t.Context()))
		}
	}},
	{name: "B29 a key that is too long or empty is an error, never cut", run: func(t *testing.T, b *bundle) {
		long := strings.Repeat("k", txmq.MaxEventIDBytes+1)
		with := func(change func(*Arrival)) Arrival { a := arrival("e"); change(&a); return a }
		arrivals := map[string]Arrival{}
		for _, key := range []string{"", long} {
			arrivals["event ID "+key] = with(func(a *Arrival) { a.EventID = key })
			arrivals["handler "+key] = with(func(a *Arrival) { a.Consumer = key })
			arrivals["topic "+key] = with(func(a *Arrival) { a.At.Topic = key })
		}
		arrivals["broker"] = with(func(a *Arrival) { a.At.BrokerName = long })
		arrivals["message ID"] = with(func(a *Arrival) { a.At.MsgID = long })
		arrivals["offset message ID"] = with(func(a *Arrival) { a.At.OffsetMsgID = long })
		for name, a := range arrivals {
			refuses(t, "Claim with "+name, func() error { _, err := b.s.Claim(t.Context(), a, "w1", minute, short); return err })
			refuses(t, "Apply with "+name, func() error {
				tx := b.begin(t)
				defer tx.Rollback()
				_, err := tx.Apply(t.Context(), a, short)
				return err
			})
			refuses(t, "Fail with "+name, func() error { return b.s.Fail(t.Context(), Failure{Arrival: a, Err: errNoStock}) })
			refuses(t, "Bury with "+name, func() error { return b.s.Bury(t.Context(), Failure{Arrival: a, Err: errNoStock}) })
		}
		for _, owner := range []string{"", strings.Repeat("o", txmq.MaxEventIDBytes+1)} {
			refuses(t, "Claim with owner "+owner, func() error {
				_, err := b.s.Claim(t.Context(), arrival("e"), owner, minute, short)
				return err
			})
			refuses(t, "TakeJob with owner "+owner, func() error {
				_, _, err := b.s.TakeJob(t.Context(), "sweep", owner, minute, false)
				return err
			})
			refuses(t, "TakeJob with name "+owner, func() error {
				_, _, err := b.s.TakeJob(t.Context(), owner, "w1", minute, false)
				return err
			})
		}
		for _, key := range []string{"", long} {
			for name, a := range map[string]Attempt{
				"attempt": {key, "t", "e", "g"}, "topic": {"a", key, "e", "g"}, "event": {"a", "t", key, "g"}, "group": {"a", "t", "e", key},
			} {
				refuses(t, "Log with "+name+" "+key, func() error { return b.log(t, a) })
				refuses(t, "Fence with "+name+" "+key, func() error {
					tx := b.begin(t)
					defer tx.Rollback()
					_, err := tx.Fence(t.Context(), a)
					return err
				})
			}
		}
		for _, table := range []string{"t_msg_consume", "t_tx_log", "t_job_lease"} {
			if n := b.count(t, "SELECT COUNT(*) FROM "+table); n != 0 {
				t.Errorf("%s has %d rows, want 0", table, n)
			}
		}
	}},
	{name: "all bad keys are reported at once", run: func(t *testing.T, b *bundle) {
		_, err := b.s.Claim(t.Context(), Arrival{}, "", minute, short)
		for _, field := range []string{"event ID", "handler name", "topic", "owner"} {
			if err == nil || !strings.Contains(err.Error(), field+" is missing") {
				t.Errorf("Claim = %v, want %s named", err, field)
			}
		}
	}},
}

// refuses checks that do gives a FieldError before it waits for anything.
func refuses(t *testing.T, what string, do func() error) {
	t.Helper()
	start := time.Now()
	var field *txmq.FieldError
	if err := do(); !errors.As(err, &field) {
		t.Errorf("%.60s = %v, want a FieldError", what, err)
	}
	if took := time.Since(start); took > short {
		t.Errorf("%.60s took %v", what, took)
	}
}
