package jobs

import (
	"context"
	"crypto/sha256"
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

const (
	handler = "shares:order-paid"
	stale   = 5 * time.Minute
)

// wire stands in for RocketMQ: it counts what it is asked for by message, whose
// ID is the event's here.
type wire struct {
	mu        sync.Mutex
	sent      map[string]int
	backs     []rocketmq.SendBackRequest
	published []rocketmq.RepublishRequest
	answer    func(rocketmq.SendBackRequest) error
	refuse    error // Republish's
	closed    int
}

func newWire() *wire { return &wire{sent: map[string]int{}} }

func (w *wire) SendBack(_ context.Context, r rocketmq.SendBackRequest) error {
	w.mu.Lock()
	w.backs = append(w.backs, r)
	w.sent[r.MsgID]++
	answer := w.answer
	w.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(r)
}

func (w *wire) Republish(_ context.Context, r rocketmq.RepublishRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = append(w.published, r)
	return w.refuse
}

func (w *wire) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}

// copies is how many each event got.
func (w *wire) copies() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := map[string]int{}
	for id, n := range w.sent {
		m[id] = n
	}
	return m
}

// of makes the arrival of an event at a handler.
func of(event, handler string) model.Arrival {
	return model.Arrival{
		EventID: event, Consumer: handler, PayloadHash: sha256.Sum256([]byte(event)),
		At: model.Position{Topic: "order-paid", BrokerName: "broker-a", QueueID: 1, QueueOffset: 7, MsgID: event, OffsetMsgID: "OFF-" + event},
	}
}

// failed makes a FAIL row, due now; change alters the failure.
func failed(t *testing.T, s *model.Store, a model.Arrival, change ...func(*model.Failure)) {
	t.Helper()
	f := model.Failure{Arrival: a, Err: errors.New("no stock")}
	for _, c := range change {
		c(&f)
	}
	if err := s.Fail(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func found(t *testing.T, s *model.Store, event, handler string) model.ConsumeRecord {
	t.Helper()
	r, err := s.Find(t.Context(), event, handler)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// healer is a replica of compensate, the broker it speaks to, and the Redriven
// events it emits.
type healer struct {
	*replica
	wire *wire

	mu     sync.Mutex
	events []txmq.Redriven
}

func (b *bundle) healer(t *testing.T, w *wire, change ...func(*Config)) *healer {
	t.Helper()
	h := &healer{wire: w}
	cfg := Config{Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Store: b.store(t)}
	for _, f := range change {
		f(&cfg)
	}
	cfg.Observe = func(_ context.Context, e txmq.Event) {
		if e, ok := e.(txmq.Redriven); ok {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		}
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	link := func() broker { return w }
	// The replica adds its own listener to the configuration's.
	h.replica = b.replicaOf(t, cfg, func(c Config) []job { return []job{compensate(c, link)} })
	h.link = link
	return h
}

func (h *healer) seen() []txmq.Redriven {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]txmq.Redriven(nil), h.events...)
}

// once runs the job and checks how many rows it has delivered.
func (h *healer) once(t *testing.T, done int) {
	t.Helper()
	res, err := h.RunOnce(t.Context(), "compensate")
	if err != nil || res.Done != done {
		t.Fatalf("RunOnce = %+v, %v; want %d done", res, err, done)
	}
}

func TestCompensate(t *testing.T) {
	t.Run("a FAIL row that is over by Stale goes back to its group, and no other row does", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			s := h.cfg.Store
			failed(t, s, of("fail", handler))
			failed(t, s, of("dead", handler), func(f *model.Failure) { f.Dead = true })
			if _, err := s.Claim(t.Context(), of("processing", handler), "w", time.Hour, time.Second); err != nil {
				t.Fatal(err)
			}
			b.clock.Add(stale - 10*time.Second)
			h.once(t, 0)
			b.clock.Add(10 * time.Second)
			h.once(t, 1)
			want := []rocketmq.SendBackRequest{{
				Group: "shares", Topic: "order-paid", OffsetMsgID: "OFF-fail", BrokerName: "broker-a", MsgID: "fail",
			}}
			if diff := cmp.Diff(want, h.wire.backs); diff != "" {
				t.Errorf("sent back (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]txmq.Redriven{{Consumer: handler, EventID: "fail", Way: txmq.RedriveSendBack}}, h.seen()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if r := found(t, s, "fail", handler); r.Status != model.Fail || !r.Redriven() || r.LastError != "no stock" {
				t.Errorf("row is %+v, want FAIL, redriven", r)
			}
			if h.wire.closed != 2 {
				t.Errorf("the broker's side was closed %d times in 2 runs", h.wire.closed)
			}
		})
	})
	t.Run("B88 ten ticks within one interval send one copy", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			failed(t, h.cfg.Store, of("e", handler))
			b.clock.Add(stale)
			h.once(t, 1)
			for range 9 {
				b.clock.Add(time.Minute)
				h.once(t, 0)
			}
			b.clock.Add(time.Minute + time.Second)
			h.once(t, 1)
		})
	})
	t.Run("a consumer that is down for a day does not get a copy every few minutes", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			failed(t, h.cfg.Store, of("e", handler))
			for range 24 * 12 {
				b.clock.Add(stale)
				if _, err := h.slots[0].job.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			// 5, 15, 35 and 75 minutes after the failure, then each 65 or so.
			if n := h.wire.copies()["e"]; n < 22 || n > 26 {
				t.Errorf("%d copies in a day, want about 25", n)
			}
		})
	})
	t.Run("what a person retried goes at the next tick", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire())
			s := h.cfg.Store
			failed(t, s, of("e", handler), func(f *model.Failure) { f.Dead = true })
			h.once(t, 0)
			if err := s.Retry(t.Context(), found(t, s, "e", handler), model.By{Actor: "ann", Reason: "stock is back"}); err != nil {
				t.Fatal(err)
			}
			h.once(t, 1)
			h.once(t, 0)
		})
	})
	t.Run("a row whose group can't be told is reported, and in nobody's way", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire(), func(c *Config) {
				c.Groups = map[string]string{"named": "their-group"}
				c.Compensate.Batch, c.Compensate.Max = 2, 6
			})
			s := h.cfg.Store
			for _, name := range []string{"lost", "a:b", ":order-paid", "no group:order-paid"} {
				failed(t, s, of("e", name))
			}
			b.clock.Add(time.Second) // these come last
			failed(t, s, of("e", "named"))
			failed(t, s, of("e", "x:y:order-paid"))
			b.clock.Add(stale)
			res, err := h.RunOnce(t.Context(), "compensate")
			var field *txmq.FieldError
			if res.Done != 1 || err == nil || !strings.Contains(err.Error(), `jobs.Config.Groups["lost"]`) ||
				strings.Count(err.Error(), "1 rows put off") != 5 {
				t.Errorf("RunOnce = %+v, %v; want 1 done and each homeless handler with the field to set", res, err)
			}
			if errors.As(err, &field) {
				t.Errorf("%v", field)
			}
			if g := h.wire.backs[0].Group; len(h.wire.backs) != 1 || g != "their-group" {
				t.Errorf("sent back to %v", h.wire.backs)
			}
			if r := found(t, s, "e", "lost"); r.Status != model.Fail || r.Redriven() {
				t.Errorf("homeless row is %+v, want FAIL as before", r)
			}
			b.clock.Add(2*stale + time.Second)
			if _, err := h.RunOnce(t.Context(), "compensate"); err == nil {
				t.Error("the second run says nothing of the homeless rows")
			}
		})
	})
	t.Run("a broker that is down holds up its own rows only, and they are put back", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer = func(r rocketmq.SendBackRequest) error {
				if r.BrokerName == "broker-b" {
					return fmt.Errorf("%w: no answer", txmq.ErrBrokerUnreachable)
				}
				return nil
			}
			h := b.healer(t, w, func(c *Config) { c.Compensate.Batch = 4 })
			s := h.cfg.Store
			for i := range 9 {
				a := of(fmt.Sprint("b", i), handler)
				a.At.BrokerName = "broker-b"
				failed(t, s, a)
			}
			b.clock.Add(time.Second)
			failed(t, s, of("a", handler))
			b.clock.Add(stale)
			res, err := h.RunOnce(t.Context(), "compensate")
			wantErr(t, "RunOnce", err, txmq.ErrBrokerUnreachable)
			if res.Done != 1 || len(w.backs) != tooMany+1 || !strings.Contains(err.Error(), "6 rows put off") {
				t.Errorf("RunOnce = %+v, %v with %d requests; want 1 done, %d tries of the dead broker", res, err, len(w.backs), tooMany)
			}
			if err := s.Resolve(t.Context(), found(t, s, "a", handler), model.By{Actor: "ann", Reason: "arrived"}); err != nil {
				t.Fatal(err)
			}
			w.answer = nil
			h.once(t, 0)
			b.clock.Add(stale + time.Second)
			h.once(t, tooMany) // those that were tried
			b.clock.Add(stale)
			h.once(t, 9-tooMany)
			if r := found(t, s, "b0", handler); r.RetryCnt != 0 || r.LastError != "no stock" {
				t.Errorf("row is %+v: an outage costs no attempt", r)
			}
		})
	})
	t.Run("one run ends at its bound, the next tick goes on", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.healer(t, newWire(), func(c *Config) { c.Compensate.Batch, c.Compensate.Max = 2, 5 })
			for i := range 9 {
				failed(t, h.cfg.Store, of(fmt.Sprint("e", i), handler))
			}
			b.clock.Add(stale)
			for _, want := range []Result{{Done: 4, More: true}, {Done: 4, More: true}, {Done: 1}} {
				res, err := h.RunOnce(t.Context(), "compensate")
				if res.Took = 0; err != nil || res != want {
					t.Errorf("RunOnce = %+v, %v; want %+v", res, err, want)
				}
			}
		})
	})
	t.Run("rows that handlers hold are left to them, and not tried over and over", func(t *testing.T) {
		maria(t, func(t *testing.T, b *bundle) {
			hs := &hooks{text: "redriven_at ="}
			db := b.hooked(t, hs)
			h := b.healer(t, newWire(), func(c *Config) {
				c.Compensate.Batch, c.Compensate.Max = 2, 20
				c.Store = b.storeOn(t, db)
			})
			tx, err := b.store(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			for i := range 2 {
				a := of(fmt.Sprint("e", i), handler)
				failed(t, h.cfg.Store, a)
				if c, err := tx.Apply(t.Context(), a, time.Second); err != nil || c.Decision != model.Run {
					t.Fatalf("Apply = %+v, %v", c, err)
				}
			}
			b.clock.Add(stale)
			res, err := h.RunOnce(t.Context(), "compensate")
			if err != nil || res.Done != 0 || !res.More || hs.met.Load() != 2 {
				t.Errorf("RunOnce = %+v, %v with %d tries; want each row tried once", res, err, hs.met.Load())
			}
		})
	})
	t.Run("a refusal is told, and the row waits its interval", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			w := newWire()
			w.answer = func(rocketmq.SendBackRequest) error { return fmt.Errorf("%w: no permission", txmq.ErrRefused) }
			h := b.healer(t, w)
			for i := range told + 2 {
				failed(t, h.cfg.Store, of(fmt.Sprint("e", i), handler))
			}
			b.clock.Add(stale)
			res, err := h.RunOnce(t.Context(), "compensate")
			wantErr(t, "RunOnce", err, txmq.ErrRefused)
			if res.Done != 0 || !strings.Contains(err.Error(), "and 2 more") || len(h.seen()) != told+2 {
				t.Errorf("RunOnce = %+v, %v with %d events", res, err, len(h.seen()))
			}
			h.once(t, 0)
		})
	})
}

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
