package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestGone(t *testing.T) {
	gone := func(rocketmq.SendBackRequest) error { return rocketmq.ErrGone }
	retried := func(t *testing.T, h *healer, keep func(*model.Failure)) {
		t.Helper()
		s := h.cfg.Store
		failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead = true }, keep)
		if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(f *model.Failure) {
		f.Body, f.Properties = []byte("body"), map[string]string{txmq.PropertyEventID: "e", "a": "b"}
	}
	t.Run("B89 a message that the broker has deleted comes from the row", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer = gone
			h := b.healer(t, w)
			retried(t, h, whole)
			h.once(t, 1)
			want := []rocketmq.RepublishRequest{{
				Group: "shares", Topic: "order-paid", Body: []byte("body"),
				Properties: map[string]string{txmq.PropertyEventID: "e", "a": "b"}, Born: found(t, h.cfg.Store, "e", handler).CreatedAt.Time,
			}}
			if diff := cmp.Diff(want, w.published); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]txmq.Redriven{{Consumer: handler, EventID: "e", Way: txmq.RedriveRepublish}}, h.seen()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("a row that does not say where its message lies is as one whose message is gone", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer = func(rocketmq.SendBackRequest) error { return &txmq.FieldError{Field: "OffsetMsgID"} }
			h := b.healer(t, w)
			retried(t, h, whole)
			h.once(t, 1)
			if len(w.published) != 1 {
				t.Errorf("%d published, want 1", len(w.published))
			}
		})
	})
	t.Run("gone while copies that were sent may still wait: FAIL and told, until none can be left", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			h := b.healer(t, w)
			retried(t, h, func(*model.Failure) {})
			h.once(t, 1) // a copy is on its way
			w.answer = gone
			for day := 1; day <= 8; day++ {
				b.clock.Add(24 * time.Hour)
				h.once(t, 0)
				want := model.Fail
				if day >= 7 {
					want = model.Dead
				}
				if r := found(t, h.cfg.Store, "e", handler); r.Status != want {
					t.Errorf("day %d: row is %s, want %s", day, r.Status, want)
				}
			}
			if e := h.seen(); len(e) != 8 || !strings.Contains(e[1].Err.Error(), "may wait in the group's retry topic") {
				t.Errorf("events %+v", e)
			}
		})
	})
	t.Run("gone, and the row keeps no body: DEAD with that reason and the one before", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer = gone
			h := b.healer(t, w)
			retried(t, h, func(*model.Failure) {})
			before := found(t, h.cfg.Store, "e", handler)
			h.once(t, 0)
			r := found(t, h.cfg.Store, "e", handler)
			if r.Status != model.Dead || r.RetryCnt != before.RetryCnt || r.LastError != rocketmq.ErrGone.Error()+"; it had failed before: no stock" {
				t.Errorf("row is %s %d %q, want DEAD with both reasons", r.Status, r.RetryCnt, r.LastError)
			}
			if e := h.seen(); len(e) != 1 || !e[0].Dead || !errors.Is(e[0].Err, rocketmq.ErrGone) {
				t.Errorf("events %+v, want one that says DEAD", e)
			}
		})
	})
	t.Run("a broker that is down takes no row from us either", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer, w.refuse = gone, txmq.ErrBrokerUnreachable
			h := b.healer(t, w)
			retried(t, h, whole)
			_, err := h.RunOnce(t.Context(), "compensate")
			wantErr(t, "RunOnce", err, txmq.ErrBrokerUnreachable)
			w.refuse = nil
			b.clock.Add(stale)
			h.once(t, 1)
		})
	})
}

func TestCompensateReplicas(t *testing.T) {
	t.Run("B63 three replicas deliver each row once per tick", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			const rows, rounds = 30, 3
			w := newWire()
			s := b.store(t)
			ran := make(chan txmq.JobRun, 100)
			var hs []*healer
			for range 3 {
				h := b.healer(t, w, func(c *Config) { c.Compensate.Batch = 7 })
				observe := h.cfg.Observe
				h.cfg.Observe = func(ctx context.Context, e txmq.Event) {
					observe(ctx, e)
					if run, ok := e.(txmq.JobRun); ok {
						ran <- run
					}
				}
				h.start(t)
				hs = append(hs, h)
			}
			<-ran // of an empty table
			for round := range rounds {
				for i := range rows {
					failed(t, s, of(fmt.Sprintf("r%d-%d", round, i), handler), func(f *model.Failure) { f.RetryIn = -stale })
				}
				b.clock.Add(interval)
				if run := <-ran; run.Err != nil || run.Done != rows {
					t.Errorf("round %d: %+v, want %d done by one replica", round, run, rows)
				}
				for _, h := range hs {
					h.pass(3)
				}
				total := 0
				for id, n := range w.copies() {
					if total += n; n != 1 {
						t.Errorf("%s got %d copies", id, n)
					}
				}
				if total != (round+1)*rows {
					t.Fatalf("%d copies after round %d, want %d", total, round, (round+1)*rows)
				}
			}
		})
	})
	t.Run("B63 a holder that dies in the middle: the next tick goes on", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			w := newWire()
			died, release := make(chan struct{}), make(chan struct{})
			var first atomic.Bool
			w.answer = func(rocketmq.SendBackRequest) error {
				if first.CompareAndSwap(false, true) {
					close(died)
					<-release
				}
				return nil
			}
			db := b.open(t)
			victim := b.healer(t, w, func(c *Config) { c.Store = b.storeOn(t, db) })
			heir := b.healer(t, w)
			for i := range 10 {
				failed(t, heir.cfg.Store, of(fmt.Sprint("e", i), handler))
			}
			b.clock.Add(stale)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = victim.RunOnce(t.Context(), "compensate") })
			<-died
			closePool(t, db) // it can't renew, nor take another row
			heir.start(t).pass(3)
			b.clock.Add(time.Minute) // its lease is over
			if run := <-heir.runs; run.Err != nil || run.Done != 9 {
				t.Errorf("the heir's run: %+v, want the 9 rows that are left", run)
			}
			close(release)
			wg.Wait()
			for id, n := range w.copies() {
				if n != 1 {
					t.Errorf("%s got %d copies", id, n)
				}
			}
		})
	})
	t.Run("B63 runs that overlap through a lease taken too early deliver each row once", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			w := newWire()
			var hs []*healer
			for range 3 { // the bare job, as holders whose lease others thought over
				hs = append(hs, b.healer(t, w, func(c *Config) { c.Compensate.Batch = 5 }))
			}
			for i := range 30 {
				failed(t, hs[0].cfg.Store, of(fmt.Sprint("e", i), handler))
			}
			b.clock.Add(stale)
			var total atomic.Int64
			var wg sync.WaitGroup
			for _, h := range hs {
				wg.Go(func() {
					res, err := h.slots[0].job.run(t.Context())
					if err != nil {
						t.Error(err)
					}
					total.Add(int64(res.Done))
				})
			}
			wg.Wait()
			hs[0].once(t, 30-int(total.Load())) // what they held up for one another
			if n := len(w.copies()); n != 30 {
				t.Errorf("%d events got a copy, want 30", n)
			}
			for id, n := range w.copies() {
				if n != 1 {
					t.Errorf("%s got %d copies", id, n)
				}
			}
		})
	})
}

func TestRedriveOne(t *testing.T) {
	retried := func(t *testing.T, h *healer) {
		t.Helper()
		s := h.cfg.Store
		failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead = true })
		if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a record that a person retried goes at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			retried(t, h)
			if way, err := h.Redrive(t.Context(), "e", handler); way != txmq.RedriveSendBack || err != nil {
				t.Errorf("Redrive = %q, %v", way, err)
			}
			if way, err := h.Redrive(t.Context(), "e", handler); way != "" || err != nil {
				t.Errorf("a second Redrive = %q, %v; want nothing", way, err)
			}
			h.once(t, 0)
		})
	})
	t.Run("beside the job, one of them delivers", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			w := newWire()
			h := b.healer(t, w)
			hs := []*healer{b.healer(t, w), b.healer(t, w), b.healer(t, w)}
			retried(t, h)
			var wg sync.WaitGroup
			for _, other := range hs {
				wg.Go(func() {
					if _, err := other.Redrive(t.Context(), "e", handler); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if _, err := h.RunOnce(t.Context(), "compensate"); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if n := w.copies()["e"]; n != 1 {
				t.Errorf("%d copies, want 1", n)
			}
		})
	})
	t.Run("what can't be redriven says why", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			_, err := h.Redrive(t.Context(), "nobody", handler)
			wantErr(t, "Redrive of no record", err, txmq.ErrNotFound)
			failed(t, h.cfg.Store, of("dead", handler), func(f *model.Failure) { f.Dead = true })
			if _, err := h.Redrive(t.Context(), "dead", handler); err == nil || !strings.Contains(err.Error(), "DEAD") {
				t.Errorf("Redrive of DEAD = %v", err)
			}
			failed(t, h.cfg.Store, of("e", "odd"))
			var field *txmq.FieldError
			if _, err := h.Redrive(t.Context(), "e", "odd"); !errors.As(err, &field) || field.Field != `jobs.Config.Groups["odd"]` {
				t.Errorf("Redrive of a homeless record = %v", err)
			}
		})
	})
}
