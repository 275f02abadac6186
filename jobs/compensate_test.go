package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
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
