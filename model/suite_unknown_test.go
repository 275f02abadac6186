package model

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/txmq/txmq"
)

// adopted makes a record look like one that came from another's table.
func (b *bundle) adopted(t *testing.T, event string, status Status) ConsumeRecord {
	t.Helper()
	b.in(t, event, status)
	exec(t, b.db, "UPDATE t_msg_consume SET payload_hash = "+unknownHash+", topic = '', broker_name = '', queue_id = 0, "+
		"queue_offset = 0, msg_id = '', offset_msg_id = '' WHERE event_id = ?", event)
	return b.find(t, event)
}

func other(event string) Arrival {
	a := arrival(event)
	a.PayloadHash = sha256.Sum256([]byte("another body"))
	a.At.QueueOffset = 77
	return a
}

// knows checks that the record has taken hash and place from a.
func (b *bundle) knows(t *testing.T, a Arrival) {
	t.Helper()
	r := b.find(t, a.EventID)
	if !bytes.Equal(r.PayloadHash, a.PayloadHash[:]) || r.Position != a.At {
		t.Errorf("%s: hash %x at %+v, want %x at %+v", a.EventID, r.PayloadHash, r.Position, a.PayloadHash, a.At)
	}
}

var unknownChecks = []check{
	{name: "a SUCCESS of an unknown body is a duplicate of any", run: func(t *testing.T, b *bundle) {
		b.adopted(t, "e", Success)
		for _, a := range []Arrival{arrival("e"), other("e")} {
			if c, err := b.s.Claim(t.Context(), a, "w1", minute, short); err != nil || c.Decision != Duplicate {
				t.Errorf("Claim = %+v, %v, want Duplicate", c, err)
			}
			tx := b.begin(t)
			if c, err := tx.Apply(t.Context(), a, short); err != nil || c.Decision != Duplicate {
				t.Errorf("Apply = %+v, %v, want Duplicate", c, err)
			}
			tx.Rollback()
		}
		if r := b.find(t, "e"); !r.unknownPayload() {
			t.Errorf("a duplicate changed the record: %+v", r)
		}
	}},
	{name: "B32 Claim of an unknown body learns it, and another one is a mismatch then", run: func(t *testing.T, b *bundle) {
		b.adopted(t, "e", Fail)
		c, err := b.s.Claim(t.Context(), other("e"), "w1", minute, short)
		if err != nil || c.Decision != Run {
			t.Fatalf("Claim = %+v, %v, want Run", c, err)
		}
		b.knows(t, other("e"))
		_, err = b.s.Claim(t.Context(), arrival("e"), "w1", minute, short)
		wantErr(t, "Claim with another body", err, txmq.ErrPayloadMismatch)
	}},
	{name: "B32 Apply of an unknown body learns it", run: func(t *testing.T, b *bundle) {
		b.adopted(t, "e", Fail)
		tx := b.begin(t)
		c, err := tx.Apply(t.Context(), other("e"), short)
		if err != nil || c.Decision != Run {
			t.Fatalf("Apply = %+v, %v, want Run", c, err)
		}
		want(t, tx.Commit(t.Context()))
		b.knows(t, other("e"))
	}},
	{name: "B32 Fail after an Apply that was rolled back learns it", run: func(t *testing.T, b *bundle) {
		r := b.adopted(t, "e", Fail)
		want(t, b.s.Fail(t.Context(), Failure{Arrival: other("e"), Version: r.Version, RetryCnt: 1, Err: errNoStock}))
		b.knows(t, other("e"))
	}},
	{name: "what is known stays as the first delivery told it, until one fails", run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		again := arrival("e")
		again.At.QueueOffset, again.At.Topic = 99, "%RETRY%shares"
		c, err := b.s.Claim(t.Context(), again, "w1", minute, short)
		if err != nil || c.Decision != Run {
			t.Fatalf("Claim = %+v, %v, want Run", c, err)
		}
		b.knows(t, arrival("e"))
		want(t, b.s.Fail(t.Context(), Failure{Arrival: again, Owner: "w1", Version: c.Version, Err: errNoStock}))
		b.knows(t, again) // where the copy lies that failed last
	}},
}
