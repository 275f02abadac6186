package jobs

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/model"
)

// share is what a Compensator does here. No unique key, so that a double effect
// shows.
type share struct {
	ID      int64 `gorm:"primaryKey"`
	EventID string
	Amount  int64
}

func pay(_ context.Context, tx *gorm.DB, r model.ConsumeRecord) error {
	return tx.Create(&share{EventID: r.EventID, Amount: 10}).Error
}

// compensator is a healer whose handler "c" has fn, and that has no broker.
func (b *bundle) compensator(t *testing.T, fn Compensator, change ...func(*Config)) *healer {
	t.Helper()
	all := append([]func(*Config){func(c *Config) {
		c.Broker = txmq.Broker{}
		c.Compensators = map[string]Compensator{"c": fn}
	}}, change...)
	h := b.healer(t, newWire(), all...)
	if err := b.open(t).AutoMigrate(&share{}); err != nil {
		t.Fatal(err)
	}
	return h
}

// sum is what all shares amount to.
func sum(t *testing.T, h *healer) (total int64) {
	t.Helper()
	if err := h.cfg.Store.DB().Model(&share{}).Select("COALESCE(SUM(amount), 0)").Scan(&total).Error; err != nil {
		t.Fatal(err)
	}
	return total
}

// due makes a FAIL row of "c" that the job finds.
func due(t *testing.T, s *model.Store, event string, change ...func(*model.Failure)) {
	t.Helper()
	failed(t, s, of(event, "c"), append(change, func(f *model.Failure) { f.RetryIn = -stale })...)
}

func TestCompensator(t *testing.T) {
	boom := errors.New("finance says no")
	t.Run("nil is SUCCESS together with its work", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var got model.ConsumeRecord
			var h *healer
			h = b.compensator(t, func(ctx context.Context, tx *gorm.DB, r model.ConsumeRecord) error {
				got = r
				if seen := found(t, h.cfg.Store, "e", "c"); seen.Status != model.Processing {
					t.Errorf("others see %s while it runs, want PROCESSING", seen.Status)
				}
				return pay(ctx, tx, r)
			})
			due(t, h.cfg.Store, "e")
			h.once(t, 1)
			if r := found(t, h.cfg.Store, "e", "c"); r.Status != model.Success || r.Version != got.Version || sum(t, h) != 10 {
				t.Errorf("row is %s version %d, shares %d; want SUCCESS, %d, 10", r.Status, r.Version, sum(t, h), got.Version)
			}
			if got.RetryCnt != 1 || got.Version != 2 || got.Owner == "" || got.LastError != "no stock" {
				t.Errorf("it was given %+v, want the record as claimed", got)
			}
			if e := h.seen(); len(e) != 1 || e[0].Way != txmq.RedriveCompensator || e[0].Err != nil || len(h.wire.backs) != 0 {
				t.Errorf("events %+v, %d sent back", e, len(h.wire.backs))
			}
			h.once(t, 0)
		})
	})
	t.Run("an error is FAIL with its pause, DEAD at the limit, and nothing of its work stays", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.compensator(t, func(ctx context.Context, tx *gorm.DB, r model.ConsumeRecord) error {
				return errors.Join(pay(ctx, tx, r), boom)
			}, func(c *Config) { c.Compensate.MaxAttempts = 3 })
			s := h.cfg.Store
			due(t, s, "e")
			h.once(t, 0)
			r := found(t, s, "e", "c")
			if r.Status != model.Fail || r.RetryCnt != 1 || r.LastError != boom.Error() || sum(t, h) != 0 {
				t.Errorf("row is %s %d %q, shares %d", r.Status, r.RetryCnt, r.LastError, sum(t, h))
			}
			for range 9 { // Stale, and then Stale
				b.clock.Add(time.Minute)
				h.once(t, 0)
			}
			if n := len(h.seen()); n != 1 {
				t.Errorf("it ran %d times within its pause", n)
			}
			b.clock.Add(2 * time.Minute)
			h.once(t, 0)
			if r := found(t, s, "e", "c"); r.Status != model.Dead || r.RetryCnt != 2 || sum(t, h) != 0 {
				t.Errorf("row is %s %d, want DEAD after the handler's run and two", r.Status, r.RetryCnt)
			}
			if e := h.seen(); len(e) != 2 || !e[1].Dead || !errors.Is(e[1].Err, boom) {
				t.Errorf("events %+v", e)
			}
		})
	})
	for name, c := range map[string]struct {
		fn     Compensator
		status model.Status
		text   string
		count  int // retry_cnt
	}{
		"Permanent is DEAD": {func(context.Context, *gorm.DB, model.ConsumeRecord) error { return consumer.Permanent(boom) }, model.Dead, "permanent: " + boom.Error(), 1},
		"Skip is SUCCESS with its reason, without its work": {func(ctx context.Context, tx *gorm.DB, r model.ConsumeRecord) error {
			return errors.Join(pay(ctx, tx, r), consumer.Skip("cancelled"))
		}, model.Success, "skipped: cancelled", 1},
		"a panic is an error": {func(context.Context, *gorm.DB, model.ConsumeRecord) error { panic("no") }, model.Fail, "panicked: no", 1},
		"Goexit is an error":  {func(context.Context, *gorm.DB, model.ConsumeRecord) error { runtime.Goexit(); return nil }, model.Fail, "without returning", 1},
		"COMMIT is an error":  {func(_ context.Context, tx *gorm.DB, _ model.ConsumeRecord) error { tx.Commit(); return nil }, model.Fail, "not the function's to end", 1},
		"the deadline is one": {func(ctx context.Context, _ *gorm.DB, _ model.ConsumeRecord) error { <-ctx.Done(); return nil }, model.Fail, "deadline is over (30s)", 1},
		"txmq's words are its own": {func(context.Context, *gorm.DB, model.ConsumeRecord) error {
			return fmt.Errorf("my own call: %w", txmq.ErrOutcomeUnknown)
		}, model.Fail, "my own call", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bundle) {
				h := b.compensator(t, c.fn)
				due(t, h.cfg.Store, "e")
				if _, err := h.RunOnce(t.Context(), "compensate"); err != nil {
					t.Fatal(err)
				}
				r := found(t, h.cfg.Store, "e", "c")
				if r.Status != c.status || !strings.Contains(r.LastError, c.text) || r.RetryCnt != c.count || sum(t, h) != 0 {
					t.Errorf("row is %s %d %q, shares %d; want %s %d %q", r.Status, r.RetryCnt, r.LastError, sum(t, h), c.status, c.count, c.text)
				}
			})
		})
	}
	for _, swallowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("a lost connection costs no attempt, swallowed: %v", swallowed), func(t *testing.T) {
			maria(t, func(t *testing.T, b *bundle) {
				h := b.compensator(t, func(ctx context.Context, tx *gorm.DB, r model.ConsumeRecord) error {
					err := errors.Join(pay(ctx, tx, r), tx.Exec("KILL CONNECTION_ID()").Error)
					if swallowed {
						return nil
					}
					return err
				})
				due(t, h.cfg.Store, "e")
				h.once(t, 0)
				r := found(t, h.cfg.Store, "e", "c")
				if r.Status != model.Fail || r.RetryCnt != 0 || !strings.Contains(r.LastError, txmq.ErrTxBroken.Error()) || sum(t, h) != 0 {
					t.Errorf("row is %s %d %q, shares %d; want FAIL 0", r.Status, r.RetryCnt, r.LastError, sum(t, h))
				}
			})
		})
	}
	t.Run("a stop costs no attempt", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			ctx, stop := context.WithCancel(t.Context())
			h := b.compensator(t, func(ctx context.Context, _ *gorm.DB, _ model.ConsumeRecord) error {
				stop()
				<-ctx.Done()
				return ctx.Err()
			})
			due(t, h.cfg.Store, "e")
			_, err := h.RunOnce(ctx, "compensate")
			if r := found(t, h.cfg.Store, "e", "c"); r.Status != model.Fail || r.RetryCnt != 0 {
				t.Errorf("row is %s %d, want FAIL 0; RunOnce = %v", r.Status, r.RetryCnt, err)
			}
		})
	})
	t.Run("an event whose workers all died is buried without another run", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.compensator(t, func(context.Context, *gorm.DB, model.ConsumeRecord) error { t.Error("it ran"); return nil },
				func(c *Config) { c.Compensate.MaxAttempts = 3 })
			for range 3 {
				claim(t, h.cfg.Store, "e", "dead")
				b.clock.Add(lease)
				if swept, err := h.cfg.Store.Sweep(t.Context(), 1); err != nil || len(swept) != 1 {
					t.Fatalf("Sweep = %d rows, %v", len(swept), err)
				}
			}
			b.clock.Add(h.cfg.Compensate.Stale)
			h.once(t, 0)
			if r := found(t, h.cfg.Store, "e", "c"); r.Status != model.Dead || !strings.Contains(r.LastError, "used up") {
				t.Errorf("row is %s %q", r.Status, r.LastError)
			}
		})
	})
	t.Run("an event that its handler may try more often, or that a person retried, runs once more", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			ran := 0
			h := b.compensator(t, func(context.Context, *gorm.DB, model.ConsumeRecord) error { ran++; return errors.New("no") },
				func(c *Config) { c.Compensate.MaxAttempts = 3 })
			due(t, h.cfg.Store, "e", func(f *model.Failure) { f.RetryCnt = 20 })
			h.once(t, 0)
			r := found(t, h.cfg.Store, "e", "c")
			if r.Status != model.Dead || ran != 1 {
				t.Errorf("row is %s after %d runs, want DEAD after one", r.Status, ran)
			}
			if err := h.cfg.Store.Retry(t.Context(), r, model.By{Actor: "ann", Reason: "mended"}); err != nil {
				t.Fatal(err)
			}
			h.once(t, 0)
			if ran != 2 {
				t.Errorf("%d runs after a retry by hand, want 2", ran)
			}
		})
	})
	t.Run("a COMMIT without answer is read back: what happened counts, once", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			for _, happened := range []bool{true, false} {
				lost := errors.New("connection reset")
				hs := &hooks{}
				hs.commit = func(tx driver.Tx) error {
					end := tx.Rollback
					if happened {
						end = tx.Commit
					}
					return errors.Join(end(), lost)
				}
				db := b.hooked(t, hs)
				h := b.compensator(t, pay, func(c *Config) { c.Store = b.storeOn(t, db) })
				event := fmt.Sprint("happened ", happened)
				due(t, b.store(t), event)
				hs.armed.Store(true)
				before := sum(t, h)
				res, err := h.RunOnce(t.Context(), "compensate")
				if e := h.seen(); err != nil || (res.Done == 1) != happened || len(e) != 1 || (e[0].Err == nil) != happened {
					t.Errorf("%s: RunOnce = %+v, %v, events %+v", event, res, err, e)
				}
				r, paid := found(t, b.store(t), event, "c"), sum(t, h)-before
				if happened && (r.Status != model.Success || paid != 10) || !happened && (r.Status != model.Fail || r.RetryCnt != 0 || paid != 0) {
					t.Errorf("%s: row is %s %d, paid %d", event, r.Status, r.RetryCnt, paid)
				}
			}
		})
	})
	t.Run("of a delivery and a Compensator only one acts", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			h := b.compensator(t, pay)
			s := h.cfg.Store
			const rows = 12
			for i := range rows {
				due(t, s, fmt.Sprint("e", i))
			}
			var wg sync.WaitGroup
			worker := b.store(t)
			wg.Go(func() { // deliveries, in the other order
				for i := rows - 1; i >= 0; i-- {
					deliver(t, worker, of(fmt.Sprint("e", i), "c"))
				}
			})
			wg.Go(func() {
				if _, err := h.RunOnce(t.Context(), "compensate"); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			for i := range rows { // what they held up for one another
				deliver(t, worker, of(fmt.Sprint("e", i), "c"))
			}
			if total := sum(t, h); total != 10*rows {
				t.Errorf("shares are %d, want %d", total, 10*rows)
			}
			for i := range rows {
				if r := found(t, s, fmt.Sprint("e", i), "c"); r.Status != model.Success {
					t.Errorf("%s is %s", r.EventID, r.Status)
				}
			}
		})
	})
	t.Run("a delivery that comes between the job's look and its claim has the row", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			other := b.store(t)
			hs := &hooks{text: "INSERT INTO t_msg_consume", before: func() {
				if c, err := other.Claim(context.WithoutCancel(t.Context()), of("e", "c"), "worker", lease, time.Second); err != nil || c.Decision != model.Run {
					t.Errorf("Claim = %+v, %v", c, err)
				}
			}}
			db := b.hooked(t, hs)
			h := b.compensator(t, func(context.Context, *gorm.DB, model.ConsumeRecord) error { t.Error("it ran"); return nil },
				func(c *Config) { c.Store = b.storeOn(t, db) })
			due(t, other, "e")
			h.once(t, 0)
			if r := found(t, other, "e", "c"); r.Status != model.Processing || r.Owner != "worker" || h.seen() != nil {
				t.Errorf("row is %s of %q, events %+v; want the worker's, and none", r.Status, r.Owner, h.seen())
			}
		})
	})
	t.Run("a worker that came back from the dead finds its lease gone", func(t *testing.T) {
		maria(t, func(t *testing.T, b *bundle) {
			other := b.store(t)
			h := b.compensator(t, func(ctx context.Context, _ *gorm.DB, r model.ConsumeRecord) error {
				b.clock.Add(30*time.Second + claimGrace)
				c, err := other.Claim(ctx, r.Arrival(), "next", time.Hour, time.Second)
				if err != nil || c.Decision != model.Run {
					t.Errorf("Claim after the lease = %+v, %v", c, err)
				}
				return nil
			})
			due(t, h.cfg.Store, "e")
			h.once(t, 0)
			if r := found(t, h.cfg.Store, "e", "c"); r.Status != model.Processing || r.Owner != "next" {
				t.Errorf("row is %s of %q, want the next one's", r.Status, r.Owner)
			}
			if e := h.seen(); len(e) != 1 || !errors.Is(e[0].Err, txmq.ErrLeaseLost) {
				t.Errorf("events %+v", e)
			}
		})
	})
	t.Run("without a broker the other handlers' rows are reported", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			h := b.compensator(t, pay)
			due(t, h.cfg.Store, "e")
			failed(t, h.cfg.Store, of("e", handler), func(f *model.Failure) { f.RetryIn = -stale })
			res, err := h.RunOnce(t.Context(), "compensate")
			if res.Done != 1 || err == nil || !strings.Contains(err.Error(), "jobs.Config.Broker is missing") {
				t.Errorf("RunOnce = %+v, %v", res, err)
			}
		})
	})
}

// deliver is a delivery of the broker's to an Atomic handler.
func deliver(t *testing.T, s *model.Store, a model.Arrival) {
	t.Helper()
	for {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		c, err := tx.Apply(t.Context(), a, time.Second)
		if err != nil && !s.Transient(err) {
			t.Error(err)
		}
		if err == nil && c.Decision == model.Run {
			if err = tx.DB().Create(&share{EventID: a.EventID, Amount: 10}).Error; err == nil {
				err = tx.Commit(t.Context())
			}
		}
		tx.Rollback()
		if err == nil && c.Decision != model.InProgress || t.Failed() || t.Context().Err() != nil {
			return
		}
	}
}
