package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// stub is a source that delivers nothing by itself.
type stub struct {
	closed error // of Close
	onRun  func(ctx context.Context)
}

func (s *stub) Start(ctx context.Context) error {
	if s.onRun != nil {
		s.onRun(ctx)
	}
	return nil
}

func (s *stub) Close(context.Context) error { return s.closed }

// runs a consumer with a stub until it is ready, calls while, and stops it.
func (b *bundle) runs(t *testing.T, c *Consumer, s *stub, while func()) {
	t.Helper()
	c.source = s
	c.members = func(context.Context) ([]rocketmq.LiveGroup, error) { return nil, nil }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	while()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// open lists the runs of the group without their end.
func (b *bundle) open(t *testing.T) (ids []string) {
	t.Helper()
	list, err := b.store.OpenRuns(t.Context(), "shares", "-", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestRunIsNoted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		c := b.consumer(t, Atomic(pay))
		b.runs(t, c, &stub{}, func() {
			if ids := b.open(t); len(ids) != 1 || ids[0] != c.owner {
				t.Errorf("open runs = %v, want this one's, %s", ids, c.owner)
			}
		})
		if ids := b.open(t); len(ids) != 0 {
			t.Errorf("open runs after a clean stop = %v, want none", ids)
		}
		first := b.consumer(t, Atomic(pay))
		b.runs(t, first, &stub{closed: errors.New("one was left running")}, func() {})
		if ids := b.open(t); len(ids) != 1 || ids[0] != first.owner {
			t.Errorf("open runs after a stop that left a handler = %v, want %s", ids, first.owner)
		}
		next := b.consumer(t, Atomic(pay))
		careful := false
		s := &stub{onRun: func(context.Context) { careful = next.arrived(message("x", "x")).claims }}
		b.runs(t, next, s, func() {})
		if !careful {
			t.Error("the successor of a run without its end is not careful before its source starts")
		}
		if ids := b.open(t); len(ids) != 1 {
			t.Errorf("open runs = %v, want the first one's still", ids)
		}
	})
}

// TestCaution tells, look by look, which deliveries are claimed first.
func TestCaution(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	type look struct {
		runs    map[string]time.Duration // silent for
		after   time.Duration            // since the first look
		horizon time.Duration            // from now: 0 for no caution
	}
	sec := time.Second
	for name, looks := range map[string][]look{
		"nobody else":          {{nil, 0, 0}, {nil, 10 * sec, 0}},
		"others that come":     {{nil, 0, 0}, {map[string]time.Duration{"a": 2 * sec}, 10 * sec, 0}},
		"one that has died":    {{map[string]time.Duration{"a": 3 * sec}, 0, 60 * sec}, {map[string]time.Duration{"a": 13 * sec}, 10 * sec, 60 * sec}, {map[string]time.Duration{"a": 33 * sec}, 30 * sec, 90 * sec}, {map[string]time.Duration{"a": 43 * sec}, 40 * sec, 90 * sec}, {nil, 3600 * sec, 0}},
		"one that died before": {{map[string]time.Duration{"a": 300 * sec}, 0, 60 * sec}, {map[string]time.Duration{"a": 310 * sec}, 10 * sec, 60 * sec}},
		"others that live":     {{map[string]time.Duration{"a": 3 * sec, "b": 9 * sec}, 0, 60 * sec}, {map[string]time.Duration{"a": 8 * sec, "b": 11 * sec}, 10 * sec, 60 * sec}, {map[string]time.Duration{"a": 4 * sec, "b": 8 * sec}, 20 * sec, 0}},
		"one that ends":        {{map[string]time.Duration{"a": 3 * sec}, 0, 60 * sec}, {nil, 10 * sec, 0}},
		"one that dies later":  {{nil, 0, 0}, {map[string]time.Duration{"a": 2 * sec}, 10 * sec, 0}, {map[string]time.Duration{"a": 22 * sec}, 30 * sec, 0}, {map[string]time.Duration{"a": 32 * sec}, 40 * sec, 100 * sec}},
		"one that was away":    {{nil, 0, 0}, {map[string]time.Duration{"a": 32 * sec}, 40 * sec, 100 * sec}, {map[string]time.Duration{"a": 3 * sec}, 50 * sec, 0}},
		"two deaths":           {{map[string]time.Duration{"a": 40 * sec}, 0, 60 * sec}, {map[string]time.Duration{"a": 80 * sec, "b": 31 * sec}, 40 * sec, 100 * sec}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &runs{}
			for i, l := range looks {
				var list []model.OpenRun
				for id, silent := range l.runs {
					list = append(list, model.OpenRun{ID: id, Silent: silent})
				}
				r.note(list, now.Add(l.after), l.after)
				var want int64
				if l.horizon != 0 {
					want = now.Add(l.horizon).UnixMilli()
				}
				if got := r.horizon.Load(); got != want {
					t.Errorf("look %d: horizon = %d, want %d (%v from now)", i, got, want, l.horizon)
				}
			}
		})
	}

	t.Run("what is claimed first", func(t *testing.T) {
		t.Parallel()
		r := &runs{}
		at := func(stored int64, times int32) *primitive.MessageExt {
			return &primitive.MessageExt{StoreTimestamp: stored, ReconsumeTimes: times}
		}
		if r.cautious(at(0, 3)) {
			t.Error("careful though no run has died")
		}
		r.horizon.Store(1000)
		for _, c := range []struct {
			m    *primitive.MessageExt
			want bool
		}{{at(999, 0), true}, {at(1000, 0), true}, {at(1001, 0), false}, {at(0, 0), true}, {at(5000, 1), true}} {
			if got := r.cautious(c.m); got != c.want {
				t.Errorf("cautious(stored %d, sent back %d times) = %v, want %v", c.m.StoreTimestamp, c.m.ReconsumeTimes, got, c.want)
			}
		}
	})
}

// careful makes the consumer take every run before it for dead.
func careful(c *Consumer) *Consumer {
	for _, d := range c.bases {
		d.runs.horizon.Store(time.Now().Add(time.Hour).UnixMilli())
	}
	return c
}

func TestCarefulDeliveries(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bundle) {
		ctx := t.Context()
		t.Run("an Atomic handler's record is seen while it runs", func(t *testing.T) {
			c := careful(b.consumer(t, Atomic(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if r := b.record(t, d.EventID); r.Status != model.Processing || r.Version != d.Version {
					t.Errorf("record meanwhile = %+v, want PROCESSING, version %d", r, d.Version)
				}
				return pay(ctx, tx, d)
			})))
			want(t, c.deliver(ctx, message("seen", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("seen", "x")), rocketmq.Ack)
			if n := b.effects(t, "seen"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
		})
		t.Run("failures, skips and stops are as in Tracked mode", func(t *testing.T) {
			c := careful(b.consumer(t, Atomic(func(_ context.Context, _ *gorm.DB, d *Delivery) error {
				if d.EventID == "skips" {
					return Skip("nothing to do")
				}
				return fmt.Errorf("attempt %d", d.Attempt)
			}), func(c *Config) { c.MaxAttempts = 2 }))
			want(t, c.deliver(ctx, message("skips", "x")), rocketmq.Ack)
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.Retry)
			want(t, c.deliver(ctx, message("fails", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "fails"); r.Status != model.Dead || r.LastError != "attempt 2" {
				t.Errorf("record = %+v, want DEAD by attempt 2", r)
			}
		})
		t.Run("workers that die are counted, and the event ends in DEAD at the limit", func(t *testing.T) {
			for i := range 3 {
				c := careful(b.consumer(t, Atomic(pay)))
				r := c.arrived(message("killer", "x"))
				if err := errors.Join(r.name(), r.claim(ctx)); err != nil || r.claimed.RetryCnt != i { // and dies
					t.Fatalf("claim = %+v, %v, want retry_cnt %d", r.claimed, err, i)
				}
				if got := careful(b.consumer(t, Atomic(pay))).deliver(ctx, message("killer", "x")); got.Kind != rocketmq.Retry || got.Delay < 50*time.Second {
					t.Errorf("with a live lease = %+v, want a retry no sooner than its rest", got)
				}
				b.clock.Add(61 * time.Second)
			}
			c := b.consumer(t, Atomic(pay), func(c *Config) { c.MaxAttempts = 3 }) // not careful: the row tells it
			want(t, c.deliver(ctx, message("killer", "x")), rocketmq.DeadLetter)
			if r := b.record(t, "killer"); r.Status != model.Dead || !strings.Contains(r.LastError, "workers of earlier runs died") {
				t.Errorf("record = %+v, want DEAD", r)
			}
			if n := b.effects(t, "killer"); n != 0 {
				t.Errorf("effects = %d, want 0", n)
			}
		})
		t.Run("a record that was claimed is claimed again, by who is not careful too", func(t *testing.T) {
			first := careful(b.consumer(t, Atomic(pay)))
			r := first.arrived(message("again", "x"))
			if err := errors.Join(r.name(), r.claim(ctx)); err != nil {
				t.Fatal(err)
			}
			b.clock.Add(61 * time.Second)
			c := b.consumer(t, Atomic(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if r := b.record(t, d.EventID); r.Status != model.Processing || r.RetryCnt != 1 || d.Attempt != 2 {
					t.Errorf("record meanwhile = %+v in attempt %d, want PROCESSING in attempt 2", r, d.Attempt)
				}
				return pay(ctx, tx, d)
			}))
			want(t, c.deliver(ctx, message("again", "x")), rocketmq.Ack)
			if done := seen[txmq.Delivered](b); !done[len(done)-1].TookOver {
				t.Errorf("delivered = %+v, want a take-over", done[len(done)-1])
			}
		})
	})
}

func TestLooksGoOn(t *testing.T) {
	t.Parallel()
	b := onMariaDB(t)
	c := b.consumer(t, Atomic(pay))
	d := c.bases[b.store]
	see := func() int64 {
		t.Helper()
		if err := d.runs.see(t.Context(), d.prepare); err != nil {
			t.Fatal(err)
		}
		return d.runs.horizon.Load()
	}
	if err := d.runs.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.store.BeginRun(t.Context(), "other", "shares"); err != nil {
		t.Fatal(err)
	}
	if horizon := see(); horizon != 0 || d.beats.heart != nil {
		t.Errorf("beside a run that lives: horizon %d, heartbeat's connection %v, want none", horizon, d.beats.heart)
	}
	b.clock.Add(31 * time.Second)
	now, err := b.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if horizon := see(); time.UnixMilli(horizon).Sub(now.Add(clockMargin)).Abs() > 10*time.Second || d.beats.heart == nil {
		t.Errorf("after its death: horizon %v at %v, want a minute later, and a connection for the heartbeat", time.UnixMilli(horizon), now)
	}
	if err := b.store.EndRun(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if horizon := see(); horizon != 0 {
		t.Errorf("after its end: horizon %d, want none", horizon)
	}
	list, err := b.store.OpenRuns(t.Context(), "shares", "", time.Hour)
	if err != nil || len(list) != 1 || list[0].Silent > 10*time.Second {
		t.Errorf("open runs = %+v, %v, want this one, seen just now", list, err)
	}
}
