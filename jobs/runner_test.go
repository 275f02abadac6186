package jobs

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zone of B65, also where no system has one

	"github.com/robfig/cron/v3"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/model"
)

func TestPanic(t *testing.T) {
	t.Run("B61 a panicking job runs again on the next tick", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(func(context.Context) error {
				if c.all.Load() <= 2 {
					panic("first ticks")
				}
				return nil
			})).start(t)
			for i := range 4 {
				run := <-r.runs
				if panicked := run.Err != nil; panicked != (i < 2) {
					t.Errorf("run %d: error %v, want a panic of the first two runs only", i, run.Err)
				}
				if i < 2 && !strings.Contains(run.Err.Error(), "panic: first ticks") {
					t.Errorf("error %q does not name the panic", run.Err)
				}
				b.clock.Add(interval)
			}
		})
	})
	t.Run("B61 a job that ends its goroutine runs again", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(func(context.Context) error {
				if c.all.Load() == 1 {
					runtime.Goexit()
				}
				return nil
			}))
			if _, err := r.RunOnce(t.Context(), "counted"); err == nil || !strings.Contains(err.Error(), "Goexit") {
				t.Errorf("first RunOnce = %v, want an error that names Goexit", err)
			}
			if _, err := r.RunOnce(t.Context(), "counted"); err != nil {
				t.Errorf("second RunOnce = %v, want nil", err)
			}
		})
	})
}

func TestOverlap(t *testing.T) {
	t.Run("B62 a slow job never overlaps itself", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			begun, end := make(chan struct{}), make(chan struct{})
			slow := c.job(func(context.Context) error {
				begun <- struct{}{}
				<-end
				return nil
			})
			r, other := b.replica(t, Config{}, slow).start(t), b.replica(t, Config{}, slow)
			<-begun
			b.clock.Add(interval / 2) // not so far that the lease would be over
			r.pass(5)
			_, err := r.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce in the same process", err, txmq.ErrJobRunning)
			_, err = other.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce in another process", err, txmq.ErrJobRunning)
			b.clock.Add(interval) // now it is, and this process must not be its own thief
			r.pass(5)
			_, err = r.RunOnce(t.Context(), "counted")
			wantErr(t, "RunOnce in the same process, the lease over", err, txmq.ErrJobRunning)
			end <- struct{}{}
			<-r.runs
			if c.most.Load() != 1 || c.all.Load() != 1 {
				t.Errorf("%d runs, %d at a time, want one", c.all.Load(), c.most.Load())
			}
		})
	})
	t.Run("B62 a tick does not overlap RunOnce", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(nothing))
			inside := b.replica(t, Config{Store: r.cfg.Store}, c.job(func(context.Context) error {
				r.start(t).pass(5)
				return nil
			}))
			if _, err := inside.RunOnce(t.Context(), "counted"); err != nil {
				t.Fatal(err)
			}
			if c.most.Load() != 1 || c.all.Load() != 1 {
				t.Errorf("%d runs, %d at a time, want one", c.all.Load(), c.most.Load())
			}
		})
	})
}

func TestStop(t *testing.T) {
	t.Run("B64 stop waits for the running job", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			var c counted
			var ended bool
			begun, end := make(chan struct{}), make(chan struct{})
			r := b.replica(t, Config{Drain: time.Minute}, c.job(func(ctx context.Context) error {
				begun <- struct{}{}
				<-end
				ended = ctx.Err() == nil
				return nil
			})).start(t)
			<-begun
			r.stop()
			close(end)
			if err := <-r.ended; err != nil || !ended {
				t.Errorf("Run = %v, job ended by itself: %v; want nil, true", err, ended)
			}
			r.ended <- nil
			if run := <-r.runs; run.Err != nil {
				t.Errorf("JobRun.Err = %v, want nil", run.Err)
			}
		})
	})
	t.Run("B64 stop cancels the job when Drain is over", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			begun := make(chan struct{})
			r := b.replica(t, Config{Drain: 7 * time.Second}, c.job(func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})).start(t)
			<-begun
			start := time.Now()
			if err := r.stopped(); err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
			if took := time.Since(start); took != 7*time.Second {
				t.Errorf("Run took %v to stop, want the Drain of 7s", took)
			}
			wantErr(t, "JobRun.Err", (<-r.runs).Err, loop.ErrDrained)
			// What was cut short is the next replica's at once.
			again := b.replica(t, Config{}, c.job(nothing)).start(t)
			if run := <-again.runs; run.Err != nil {
				t.Errorf("the next replica's run = %v", run.Err)
			}
		})
	})
	t.Run("no drain cancels at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			begun := make(chan struct{})
			r := b.replica(t, Config{Drain: -1}, c.job(func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return nil
			})).start(t)
			<-begun
			start := time.Now()
			if err := r.stopped(); err != nil || time.Since(start) != 0 {
				t.Errorf("Run = %v after %v, want nil at once", err, time.Since(start))
			}
		})
	})
	t.Run("an ended context runs nothing", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := b.replica(t, Config{}, c.job(nothing)).Run(ctx); err != nil || c.all.Load() != 0 {
				t.Errorf("Run = %v with %d runs, want nil with none", err, c.all.Load())
			}
		})
	})
	t.Run("a second Run is an error", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			r := b.replica(t, Config{}, c.job(nothing)).start(t)
			<-r.runs
			if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
				t.Errorf("second Run = %v, want an error", err)
			}
		})
	})
}

func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		var c counted
		j := c.job(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		j.timeout = 3 * time.Second
		start := time.Now()
		_, err := b.replica(t, Config{}, j).RunOnce(t.Context(), "counted")
		wantErr(t, "RunOnce", err, context.DeadlineExceeded)
		if took := time.Since(start); took != j.timeout || !strings.Contains(err.Error(), "longer than 3s") {
			t.Errorf("RunOnce = %v after %v, want the timeout named after %v", err, took, j.timeout)
		}
	})
}

// A schedule by interval knows no zone: over the night when Los Angeles has no
// 02:30, it ticks as in any other.
func TestZone(t *testing.T) {
	t.Run("B65 the spring switch changes no interval", func(t *testing.T) {
		zone, err := time.LoadLocation("America/Los_Angeles")
		if err != nil {
			t.Fatal(err)
		}
		s := &atOnce{Schedule: cron.Every(30 * time.Minute)}
		at := time.Date(2026, time.March, 8, 0, 0, 0, 0, zone)
		if first := s.Next(at); !first.Equal(at) {
			t.Errorf("first tick %v, want now", first)
		}
		for range 12 {
			next := s.Next(at)
			if got := next.Sub(at); got != 30*time.Minute {
				t.Errorf("tick after %v comes %v later, want 30m", at, got)
			}
			at = next
		}
	})
	for name, at := range map[string]time.Time{ // a bubble's time begins in 2000
		"spring": time.Date(2000, time.April, 2, 10, 0, 0, 0, time.UTC),
		"autumn": time.Date(2000, time.October, 29, 9, 0, 0, 0, time.UTC),
	} {
		t.Run("B65 a process in a zone with summer time skips no run and doubles none, in "+name, func(t *testing.T) {
			zone, err := time.LoadLocation("America/Los_Angeles")
			if err != nil {
				t.Fatal(err)
			}
			local := time.Local
			time.Local = zone
			defer func() { time.Local = local }()
			bubble(t, func(t *testing.T, b *bundle) {
				<-time.After(time.Until(at.Add(-2 * time.Hour)))
				_, before := time.Now().Zone()
				ran := make(chan time.Time, 1)
				r := b.replica(t, Config{}, job{
					name: "half-hourly", every: 30 * time.Minute, timeout: time.Minute,
					run: func(context.Context) (Result, error) { ran <- time.Now(); return Result{}, nil },
				})
				r.schedule = func(every time.Duration) cron.Schedule { return cron.Every(every) }
				r.start(t)
				last := <-ran
				for range 8 {
					<-r.runs
					b.clock.Add(30 * time.Minute) // the database's
					next := <-ran
					if got := next.Sub(last); got != 30*time.Minute {
						t.Errorf("run after %v comes %v later, want 30m", last, got)
					}
					last = next
				}
				if _, after := last.Zone(); after == before {
					t.Errorf("no switch between %v and %v", at, last)
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	t.Run("every bad field is named", func(t *testing.T) {
		_, err := New(Config{Lease: time.Millisecond, Drain: -5, Sweep: SweepConfig{
			Every: 1500 * time.Millisecond, Batch: -1, Max: -2, Timeout: -time.Second,
		}})
		if err == nil {
			t.Fatal("New = nil, want an error")
		}
		for _, field := range []string{"Store", "Lease", "Drain", "Sweep.Every", "Sweep.Batch", "Sweep.Max", "Sweep.Timeout"} {
			if !strings.Contains(err.Error(), "jobs.Config."+field+" is ") {
				t.Errorf("error does not name %s: %v", field, err)
			}
		}
	})
	t.Run("defaults", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			r, err := New(Config{Store: b.store(t)})
			if err != nil {
				t.Fatal(err)
			}
			if names := r.Names(); !slices.Equal(names, []string{"sweep"}) { // the zero configuration sends nothing
				t.Errorf("Names = %v", names)
			}
			got := r.cfg.Sweep
			if want := (SweepConfig{time.Minute, 500, 10_000, time.Minute}); got != want || r.cfg.Drain != 30*time.Second {
				t.Errorf("Sweep = %+v, want %+v; Drain %v, want 30s", got, want, r.cfg.Drain)
			}
			if len(r.owner) > 64 {
				t.Errorf("owner %q has %d bytes, the column holds 64", r.owner, len(r.owner))
			}
		})
	})
	t.Run("an unknown job's error lists the names", func(t *testing.T) {
		r := newRunner(Config{}.withDefaults(), job{name: "a"}, job{name: "b"})
		_, err := r.RunOnce(t.Context(), "c")
		var field *txmq.FieldError
		if !errors.As(err, &field) || !strings.Contains(err.Error(), "a, b") {
			t.Errorf("RunOnce = %v, want a FieldError with the names", err)
		}
	})
	t.Run("Every -1 is for RunOnce only", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c, d counted
			off, on := c.job(nothing), d.job(nothing)
			off.name, off.every = "off", never
			r := b.replica(t, Config{}, off, on).start(t)
			<-r.runs
			r.pass(5)
			if _, err := r.RunOnce(t.Context(), "off"); err != nil || c.all.Load() != 1 {
				t.Errorf("RunOnce = %v, %d runs; want nil and its own only", err, c.all.Load())
			}
		})
	})
	t.Run("a run without a database is reported", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			var c counted
			db := b.open(t)
			s := b.storeOn(t, db)
			pool, _ := db.DB()
			_ = pool.Close()
			r := b.replica(t, Config{Store: s}, c.job(nothing)).start(t)
			for range 2 { // and the next tick tries again
				if run := <-r.runs; run.Err == nil || c.all.Load() != 0 {
					t.Errorf("JobRun.Err = %v with %d runs, want the database's error and none", run.Err, c.all.Load())
				}
			}
		})
	})
}

// leaseOf reads a job's row.
func leaseOf(t *testing.T, s *model.Store, name string) (owner string, fence int64) {
	t.Helper()
	row := s.DB().Table(s.Table("job_lease")).Select("owner, version").Where("name = ?", name).Row()
	if err := row.Scan(&owner, &fence); err != nil {
		t.Fatal(err)
	}
	return owner, fence
}
