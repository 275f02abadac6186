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

func TestRedriveBuriesNothing(t *testing.T) {
	for name, answer := range map[string]error{
		"the message is gone":                rocketmq.ErrGone,
		"the row does not say where it lies": &txmq.FieldError{Field: "OffsetMsgID"},
	} {
		t.Run(name+", and no copy of it is kept: FAIL, and due for the job", func(t *testing.T) {
			each(t, func(t *testing.T, b *bundle) {
				w := newWire()
				w.answer = func(rocketmq.SendBackRequest) error { return answer }
				h := b.healer(t, w)
				s := h.cfg.Store
				failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead = true })
				if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "again"}); err != nil {
					t.Fatal(err)
				}
				before := found(t, s, "e", handler)
				way, err := h.Redrive(t.Context(), "e", handler)
				var op *txmq.OpError
				if way != txmq.RedriveSendBack || !errors.As(err, &op) || !strings.Contains(err.Error(), "the row keeps no copy") {
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
