package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

const lease = time.Minute

func arrived(event string) model.Arrival {
	return model.Arrival{EventID: event, Consumer: "c", PayloadHash: sha256.Sum256([]byte(event)), At: model.Position{Topic: "t"}}
}

// claim makes a PROCESSING row of a worker.
func claim(t *testing.T, s *model.Store, event, owner string) model.Held {
	t.Helper()
	c, err := s.Claim(t.Context(), arrived(event), owner, lease, time.Second)
	if err != nil || c.Decision != model.Run {
		t.Fatalf("Claim %s = %+v, %v", event, c, err)
	}
	return model.Held{EventID: event, Consumer: "c", Owner: owner, Version: c.Version}
}

// succeed ends a row as its worker does.
func succeed(ctx context.Context, s *model.Store, h model.Held) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.Succeed(ctx, h); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func find(t *testing.T, s *model.Store, event string) model.ConsumeRecord {
	t.Helper()
	r, err := s.Find(t.Context(), event, "c")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sweeper is a replica of the sweep, and the Swept events it emits.
func (b *bundle) sweeper(t *testing.T, cfg Config) (*replica, *sync.Map) {
	t.Helper()
	var swept sync.Map
	if cfg.Store == nil {
		cfg.Store = b.store(t)
	}
	cfg.Observe = func(_ context.Context, e txmq.Event) {
		if s, ok := e.(txmq.Swept); ok {
			n, _ := swept.LoadOrStore(s.EventID, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			if s.Consumer != "c" || !strings.HasPrefix(s.Owner, "dead") {
				t.Errorf("Swept = %+v, want the consumer and the dead owner", s)
			}
		}
	}
	cfg = cfg.withDefaults()
	return b.replica(t, cfg, sweep(cfg)), &swept
}

func count(m *sync.Map) (n int) {
	m.Range(func(_, v any) bool {
		n += int(v.(*atomic.Int64).Load())
		return true
	})
	return n
}

func TestSweep(t *testing.T) {
	t.Run("a row whose lease is over becomes FAIL, a live one stays", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			r, swept := b.sweeper(t, Config{})
			s := r.cfg.Store
			claim(t, s, "stuck", "dead")
			b.clock.Add(lease)
			claim(t, s, "live", "alive")
			if err := succeed(t.Context(), s, claim(t, s, "done", "alive")); err != nil {
				t.Fatal(err)
			}
			if res, err := r.RunOnce(t.Context(), "sweep"); err != nil || res.Done != 1 || res.More {
				t.Errorf("RunOnce = %+v, %v; want 1 done", res, err)
			}
			if got := find(t, s, "stuck"); got.Status != model.Fail || !strings.Contains(got.LastError, "dead") {
				t.Errorf("stuck row is %s %q, want FAIL that names the owner", got.Status, got.LastError)
			}
			if got := find(t, s, "live"); got.Status != model.Processing || got.Owner != "alive" {
				t.Errorf("live row is %s of %q", got.Status, got.Owner)
			}
			if got := find(t, s, "done"); got.Status != model.Success {
				t.Errorf("done row is %s", got.Status)
			}
			if count(swept) != 1 {
				t.Errorf("%d Swept events, want 1", count(swept))
			}
			if run := <-r.runs; run.Job != "sweep" || run.Done != 1 || run.Err != nil {
				t.Errorf("JobRun = %+v", run)
			}
		})
	})
	t.Run("B21 a row that finished meanwhile stays SUCCESS", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			worker := b.store(t)
			slow, stuck := claim(t, worker, "slow", "dead 1"), claim(t, worker, "stuck", "dead 2")
			b.clock.Add(lease)
			var ended error
			h := &hooks{text: "UPDATE t_msg_consume SET status = 'FAIL'", before: func() {
				ended = succeed(context.WithoutCancel(t.Context()), worker, slow) // the sweep has read both rows
			}}
			r, swept := b.sweeper(t, Config{Store: b.storeOn(t, b.hooked(t, h))})
			res, err := r.RunOnce(t.Context(), "sweep")
			if err != nil || ended != nil || res.Done != 1 {
				t.Errorf("RunOnce = %+v, %v; Succeed = %v; want 1 done", res, err, ended)
			}
			if got := find(t, worker, "slow"); got.Status != model.Success || got.LastError != "" {
				t.Errorf("row is %s %q, want SUCCESS", got.Status, got.LastError)
			}
			if n, _ := swept.Load("slow"); n != nil {
				t.Error("Swept was emitted for the row that finished")
			}
			// And the other way round: the old worker may not write over the sweep.
			wantErr(t, "Succeed after the sweep", succeed(t.Context(), worker, stuck), txmq.ErrLeaseLost)
			if got := find(t, worker, "stuck"); got.Status != model.Fail {
				t.Errorf("swept row is %s, want FAIL", got.Status)
			}
		})
	})
	t.Run("B21 a row that was taken over meanwhile stays the new owner's", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			worker := b.store(t)
			claim(t, worker, "e", "dead")
			b.clock.Add(lease)
			h := &hooks{text: "UPDATE t_msg_consume SET status = 'FAIL'", before: func() {
				if _, err := worker.Claim(context.WithoutCancel(t.Context()), arrived("e"), "next", lease, time.Second); err != nil {
					t.Error(err)
				}
			}}
			r, swept := b.sweeper(t, Config{Store: b.storeOn(t, b.hooked(t, h))})
			if res, err := r.RunOnce(t.Context(), "sweep"); err != nil || res.Done != 0 || count(swept) != 0 {
				t.Errorf("RunOnce = %+v, %v with %d Swept; want none", res, err, count(swept))
			}
			if got := find(t, worker, "e"); got.Status != model.Processing || got.Owner != "next" {
				t.Errorf("row is %s of %q, want the next owner's", got.Status, got.Owner)
			}
		})
	})
	t.Run("one run ends at its bound, the next tick goes on", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			r, swept := b.sweeper(t, Config{Sweep: SweepConfig{Batch: 2, Max: 5}})
			for i := range 9 {
				claim(t, r.cfg.Store, fmt.Sprint("e", i), "dead")
			}
			b.clock.Add(lease)
			for _, want := range []Result{{Done: 4, More: true}, {Done: 4, More: true}, {Done: 1}} {
				res, err := r.RunOnce(t.Context(), "sweep")
				if res.Took = 0; err != nil || res != want {
					t.Errorf("RunOnce = %+v, %v; want %+v", res, err, want)
				}
			}
			if count(swept) != 9 {
				t.Errorf("%d Swept events, want 9", count(swept))
			}
		})
	})
	t.Run("B63 three replicas sweep each row once", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			const rows, rounds = 40, 3
			var all []*sync.Map
			var rs []*replica
			ran := make(chan txmq.JobRun, 100)
			s := b.store(t)
			for range 3 {
				r, swept := b.sweeper(t, Config{Sweep: SweepConfig{Batch: 7}})
				observe := r.cfg.Observe
				r.cfg.Observe = func(ctx context.Context, e txmq.Event) {
					observe(ctx, e)
					if run, ok := e.(txmq.JobRun); ok {
						ran <- run
					}
				}
				r.start(t)
				rs, all = append(rs, r), append(all, swept)
			}
			<-ran // of an empty table
			total := 0
			for round := range rounds {
				for i := range rows {
					claim(t, s, fmt.Sprintf("r%d-%d", round, i), "dead")
				}
				b.clock.Add(interval)
				if run := <-ran; run.Err != nil || run.Done != rows {
					t.Errorf("round %d: %+v, want %d done by one replica", round, run, rows)
				}
				for _, r := range rs {
					r.pass(3)
				}
				total = 0
				for _, swept := range all {
					total += count(swept)
				}
				if total != (round+1)*rows {
					t.Fatalf("%d Swept after round %d, want %d", total, round, (round+1)*rows)
				}
			}
		})
	})
	t.Run("B63 sweeps that overlap after a lost lease change each row once", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			s := b.store(t)
			for i := range 30 {
				claim(t, s, fmt.Sprint("e", i), "dead")
			}
			b.clock.Add(lease)
			var total atomic.Int64
			var wg sync.WaitGroup
			for range 3 { // the bare sweep, as three zombies would run it
				r, _ := b.sweeper(t, Config{Sweep: SweepConfig{Batch: 5}})
				wg.Go(func() {
					res, err := r.slots[0].job.run(t.Context())
					if err != nil {
						t.Error(err)
					}
					total.Add(int64(res.Done))
				})
			}
			wg.Wait()
			if n := total.Load(); n > 30 {
				t.Errorf("%d rows swept, want each of 30 at most once", n)
			}
			left, err := s.Records(t.Context(), model.Filter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range left {
				if r.Version > 2 {
					t.Errorf("row %s changed %d times", r.EventID, r.Version-1)
				}
			}
		})
	})
}
