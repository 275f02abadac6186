package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

func TestReplicas(t *testing.T) {
	t.Run("B63 three replicas run a job once per interval", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			var rs []*replica
			ran := make(chan txmq.JobRun, 100)
			for range 3 {
				rs = append(rs, b.replica(t, Config{Observe: func(_ context.Context, e txmq.Event) {
					ran <- e.(txmq.JobRun)
				}}, c.job(nothing)).start(t))
			}
			for i := int64(1); i <= 5; i++ {
				if run := <-ran; run.Err != nil {
					t.Errorf("run %d: %v", i, run.Err)
				}
				for _, r := range rs {
					r.pass(4) // each has had its turns
				}
				if c.all.Load() != i || c.most.Load() != 1 {
					t.Fatalf("%d runs in %d intervals, %d at a time", c.all.Load(), i, c.most.Load())
				}
				b.clock.Add(interval)
			}
		})
	})
	t.Run("B63 a dead holder's lease is taken over by the database's clock", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(nothing))
			s := r.cfg.Store
			if _, ok, err := s.TakeJob(t.Context(), "counted", "dead", time.Minute, false); err != nil || !ok {
				t.Fatal(ok, err)
			}
			r.start(t).pass(5)
			_, err := r.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce beside a live lease", err, txmq.ErrJobRunning)
			if n := c.all.Load(); n != 0 {
				t.Fatalf("%d runs under another's lease", n)
			}
			_, before := leaseOf(t, s, "counted")
			b.clock.Add(time.Minute)
			if run := <-r.runs; run.Err != nil {
				t.Errorf("run after the lease: %v", run.Err)
			}
			if owner, fence := leaseOf(t, s, "counted"); owner != r.owner || fence <= before {
				t.Errorf("row has owner %q fence %d, want %q and more than %d", owner, fence, r.owner, before)
			}
		})
	})
	t.Run("B63 a run that lost its lease is cancelled and may not end it", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			begun := make(chan struct{}, 100)
			r := b.replica(t, Config{Lease: time.Second}, c.job(func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}))
			thief := b.store(t)
			r.start(t)
			<-begun
			held, ok := model.JobLease{}, false
			for !ok { // a renewal may come in between
				b.clock.Add(time.Minute)
				var err error
				if held, ok, err = thief.TakeJob(t.Context(), "counted", "thief", 100*time.Hour, true); err != nil {
					t.Fatal(err)
				}
			}
			wantErr(t, "JobRun.Err", (<-r.runs).Err, txmq.ErrLeaseLost)
			if owner, fence := leaseOf(t, thief, "counted"); owner != "thief" || fence != held.Fence {
				t.Errorf("row has owner %q fence %d, want the thief's %d", owner, fence, held.Fence)
			}
		})
	})
	t.Run("B63 a lost lease is noticed at the next renewal", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(func(ctx context.Context) error {
				b.clock.Add(time.Minute)
				if _, ok, err := b.store(t).TakeJob(t.Context(), "counted", "thief", time.Hour, true); err != nil || !ok {
					t.Error(ok, err)
				}
				<-ctx.Done()
				return nil // whatever the job makes of it
			}))
			start := time.Now()
			_, err := r.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce", err, txmq.ErrLeaseLost)
			if took := time.Since(start); took > 22*time.Second {
				t.Errorf("noticed after %v, want a third of the lease of 1m", took)
			}
		})
	})
	t.Run("B63 a long run keeps its lease", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			begun := make(chan struct{})
			r := b.replica(t, Config{}, c.job(func(ctx context.Context) error {
				if c.all.Load() > 1 {
					return nil // it may have the second turn, too
				}
				close(begun)
				// The database's clock goes with the bubble's, second by second.
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for range 300 { // five leases
					<-tick.C
					b.clock.Add(time.Second)
				}
				return ctx.Err()
			}))
			other := b.replica(t, Config{}, c.job(nothing))
			r.period, other.period = 5*time.Second, 5*time.Second
			r.start(t)
			<-begun
			other.start(t)
			if run := <-r.runs; run.Err != nil || run.Took != 300*time.Second {
				t.Errorf("run took %v, error %v; want 5m0s, nil", run.Took, run.Err)
			}
			if c.most.Load() != 1 {
				t.Errorf("%d at a time, want 1", c.most.Load())
			}
			// It took longer than its interval, so the next turn comes at once.
			select {
			case <-r.runs:
			case <-other.runs:
			}
		})
	})
	t.Run("B63 a run whose renewals do not get through ends with its lease", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			db := b.open(t)
			r := b.replica(t, Config{Store: b.storeOn(t, db)}, c.job(func(ctx context.Context) error {
				closePool(t, db)
				<-ctx.Done()
				return ctx.Err()
			}))
			start := time.Now()
			_, err := r.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce", err, txmq.ErrLeaseLost)
			if took := time.Since(start); took > time.Minute || took < 59*time.Second {
				t.Errorf("ended after %v, want with the lease of 1m", took)
			}
		})
	})
	t.Run("B63 an early timer does not lose its turn", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(nothing)).start(t)
			<-r.runs
			b.clock.Add(interval * 89 / 100)
			r.pass(3)
			if n := c.all.Load(); n != 1 {
				t.Fatalf("%d runs within nine tenths of the interval", n)
			}
			b.clock.Add(interval / 100)
			<-r.runs
		})
	})
	t.Run("RunOnce counts as the interval's run", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(nothing))
			for range 2 { // due or not
				if res, err := r.RunOnce(t.Context(), "counted"); err != nil || res.Done != 1 {
					t.Fatalf("RunOnce = %+v, %v", res, err)
				}
			}
			r.start(t).pass(5)
			if n := c.all.Load(); n != 2 {
				t.Errorf("%d runs, want RunOnce's two", n)
			}
		})
	})
}

// What is left over is for the next tick, not for the next interval.
func TestMore(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		left := 3
		r := b.replica(t, Config{}, job{
			name: "more", every: interval, timeout: time.Minute,
			run: func(context.Context) (Result, error) { left--; return Result{Done: 1, More: left > 0}, nil },
		}).start(t)
		for range 3 {
			<-r.runs
		}
		r.pass(5)
		if left != 0 {
			t.Errorf("%d left, want 0 and no run more", left)
		}
	})
}

func TestFailedJobWaitsItsInterval(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		var c counted
		bad := errors.New("bad")
		r := b.replica(t, Config{}, c.job(func(context.Context) error { return bad })).start(t)
		for i := int64(1); i <= 3; i++ {
			wantErr(t, "JobRun.Err", (<-r.runs).Err, bad)
			r.pass(3)
			if c.all.Load() != i {
				t.Fatalf("%d runs in %d intervals", c.all.Load(), i)
			}
			b.clock.Add(interval)
		}
	})
}

func closePool(t *testing.T, db *gorm.DB) {
	t.Helper()
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	_ = pool.Close()
}
