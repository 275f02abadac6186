package jobs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestUnsendableCopy(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		w := newWire()
		w.answer = func(rocketmq.SendBackRequest) error { return rocketmq.ErrGone }
		w.refuse = &txmq.FieldError{Field: `RepublishRequest.Properties["k"]`, Value: "3 bytes", Want: "no control character 1 or 2"}
		h := b.healer(t, w)
		s := h.cfg.Store
		failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead, f.Body = true, []byte("body") })
		if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "again"}); err != nil {
			t.Fatal(err)
		}
		h.once(t, 0)
		r := found(t, s, "e", handler)
		if want := `the copy that the record keeps can't be sent: Properties["k"] is "3 bytes"`; r.Status != model.Dead || !strings.HasPrefix(r.LastError, want) {
			t.Errorf("row is %s %q, want DEAD and %q", r.Status, r.LastError, want)
		}
	})
}

func TestRedriveBuriesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   string
	}{
		"the message is gone":                {rocketmq.ErrGone, "message is gone from the broker, and the row keeps no copy"},
		"the row does not say where it lies": {&txmq.FieldError{Field: "OffsetMsgID"}, `topic "order-paid", offset message ID "`},
	} {
		t.Run(name+", and no copy of it is kept: FAIL, and due for the job", func(t *testing.T) {
			each(t, func(t *testing.T, b *bundle) {
				w := newWire()
				w.answer = func(rocketmq.SendBackRequest) error { return c.answer }
				h := b.healer(t, w)
				s := h.cfg.Store
				failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead = true })
				if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "again"}); err != nil {
					t.Fatal(err)
				}
				before := found(t, s, "e", handler)
				way, err := h.Redrive(t.Context(), "e", handler)
				var op *txmq.OpError
				if way != txmq.RedriveSendBack || !errors.As(err, &op) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the row keeps no copy") {
					t.Errorf("Redrive = %q, %v; want an error that says what is missing", way, err)
				}
				after := found(t, s, "e", handler)
				if after.Status != model.Fail || after.Version != before.Version || after.LastError != before.LastError {
					t.Errorf("row is %+v, want it left FAIL", after)
				}
				if e := h.seen(); len(e) != 1 || e[0].Dead || e[0].Err == nil {
					t.Errorf("events %+v, want one with the error, and no DEAD", e)
				}
				due, err := s.Due(t.Context(), stale, 10)
				if err != nil || len(due) != 1 {
					t.Errorf("Due = %d rows, %v; want the row", len(due), err)
				}
				w.answer = nil // the job finds the message after all
				h.once(t, 1)
				if diff := cmp.Diff(map[string]int{"e": 2}, w.copies()); diff != "" {
					t.Errorf("copies (-want +got):\n%s", diff)
				}
			})
		})
	}
}
