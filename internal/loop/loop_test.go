package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var errStep = errors.New("no database")

// run starts l and gives what ends it: the time that Run took from then on.
func run(t *testing.T, l loop.Loop) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() time.Duration {
		t.Helper()
		start := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		return time.Since(start)
	}
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// near: the jitter is 10 %.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want*9/10 || got > want*11/10 {
		t.Errorf("%s = %v, want %v ±10 %%", what, got, want)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	const interval = time.Minute

	t.Run("the first step runs at once, the next after Interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var at []time.Duration
			stop := run(t, loop.Loop{Interval: interval, Step: func(context.Context) (bool, error) {
				at = append(at, time.Since(start))
				return false, nil
			}})
			pass(150 * time.Second)
			took := stop()
			if len(at) != 3 || at[0] != 0 || took != 0 {
				t.Fatalf("steps at %v, stop took %v, want three, the first at once", at, took)
			}
			near(t, "first pause", at[1], interval)
			near(t, "second pause", at[2]-at[1], interval)
		})
	})

	t.Run("pauses differ, so that replicas do not march in step", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			last, pauses := time.Now(), map[time.Duration]bool{}
			stop := run(t, loop.Loop{Interval: interval, Step: func(context.Context) (bool, error) {
				pauses[time.Since(last)] = true
				last = time.Now()
				return false, nil
			}})
			pass(20 * interval)
			stop()
			if len(pauses) < 10 {
				t.Errorf("%d different pauses in 20 steps", len(pauses))
			}
		})
	})

	t.Run("a step that found more is followed at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			steps, start := 0, time.Now()
			stop := run(t, loop.Loop{Interval: interval, Step: func(context.Context) (bool, error) {
				steps++
				return steps < 5, nil
			}})
			synctest.Wait()
			if steps != 5 || time.Since(start) != 0 {
				t.Errorf("%d steps in %v, want 5 at once", steps, time.Since(start))
			}
			stop()
		})
	})

	t.Run("an error pauses as OnError says, also when there was more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var at []time.Duration
			var seen []error
			stop := run(t, loop.Loop{
				Interval: interval,
				Step: func(context.Context) (bool, error) {
					at = append(at, time.Since(start))
					return true, errStep
				},
				OnError: func(err error) time.Duration {
					seen = append(seen, err)
					return time.Duration(len(seen)) * time.Second
				},
			})
			pass(4 * time.Second)
			stop()
			if diff := cmp.Diff([]time.Duration{0, time.Second, 3 * time.Second}, at); diff != "" || !errors.Is(seen[0], errStep) {
				t.Errorf("saw %v; steps at (-want +got):\n%s", seen, diff)
			}
		})
	})

	t.Run("without OnError an error pauses for Interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			steps := 0
			stop := run(t, loop.Loop{Interval: interval, Step: func(context.Context) (bool, error) {
				steps++
				return true, errStep
			}})
			pass(interval / 2)
			if steps != 1 {
				t.Errorf("%d steps in half an interval, want 1", steps)
			}
			stop()
		})
	})

	t.Run("a pause ends with the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stop := run(t, loop.Loop{Interval: time.Hour, Drain: time.Hour, Step: func(context.Context) (bool, error) { return false, nil }})
			synctest.Wait()
			if took := stop(); took != 0 {
				t.Errorf("stop took %v, want nothing", took)
			}
		})
	})

	t.Run("no step runs once the context has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			l := loop.Loop{Drain: time.Hour, Step: func(context.Context) (bool, error) { t.Error("a step ran"); return false, nil }}
			start := time.Now()
			if err := l.Run(ctx); err != nil || time.Since(start) != 0 {
				t.Errorf("Run = %v after %v, want nil at once", err, time.Since(start))
			}
			steps := 0
			ctx, cancel = context.WithCancel(t.Context())
			l.Step = func(context.Context) (bool, error) { steps++; cancel(); return true, nil }
			if err := l.Run(ctx); err != nil || steps != 1 {
				t.Errorf("Run = %v after %d steps, want nil after 1", err, steps)
			}
		})
	})
}

// slow is a step that takes d, or less when its context ends.
func slow(d time.Duration, cause *error) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			*cause = context.Cause(ctx)
		}
		return false, ctx.Err()
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain, step, want time.Duration
		cause             error
	}{
		"a step that ends in time is not disturbed":      {30 * time.Second, 10 * time.Second, 10 * time.Second, nil},
		"a step that does not is cancelled with a cause": {30 * time.Second, time.Hour, 30 * time.Second, loop.ErrDrained},
		"without Drain it is cancelled at once":          {0, time.Hour, 0, loop.ErrDrained},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cause error
				stop := run(t, loop.Loop{Drain: c.drain, Interval: time.Hour, Step: slow(c.step, &cause)})
				synctest.Wait()
				if took := stop(); took != c.want || !errors.Is(cause, c.cause) {
					t.Errorf("stop took %v, cause %v, want %v, %v", took, cause, c.want, c.cause)
				}
			})
		})
	}

	t.Run("a step keeps the values of Run's context, but not its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			type key struct{}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
			l := loop.Loop{Drain: time.Second, Step: func(work context.Context) (bool, error) {
				cancel()
				if work.Err() != nil || work.Value(key{}) != "v" {
					t.Errorf("Err %v, Value %v, want nil, v", work.Err(), work.Value(key{}))
				}
				return false, nil
			}}
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	})

	t.Run("a panic in a step goes on, and leaves no goroutine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v, want boom", p)
				}
			}()
			_ = loop.Loop{Step: func(context.Context) (bool, error) { panic("boom") }}.Run(t.Context())
		})
	})
}
