package consumer

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeyIsOnesAtATime(t *testing.T) {
	t.Parallel()
	l := newKeyLock()
	var inside, most, turns atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				release, err := l.take(t.Context(), eventKey{"c", "k"}, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				turns.Add(1)
				inside.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || turns.Load() != 8*200 {
		t.Errorf("%d had the key at a time, %d turns; want 1, %d", most.Load(), turns.Load(), 8*200)
	}
	if len(l.held) != 0 {
		t.Errorf("%d keys are kept, want none", len(l.held))
	}
}

// TestKeyGoesToWhoWaits: at the release, not at the limit.
func TestKeyGoesToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newKeyLock()
		release, err := l.take(t.Context(), eventKey{"c", "k"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		began, turns := time.Now(), make(chan time.Duration, 2)
		for range 2 {
			go func() {
				next, err := l.take(t.Context(), eventKey{"c", "k"}, time.Hour)
				if err != nil {
					t.Error(err)
				}
				turns <- time.Since(began)
				next()
			}()
		}
		synctest.Wait()
		if len(turns) != 0 {
			t.Error("somebody has the turn beside its holder")
		}
		release()
		for range 2 {
			if waited := <-turns; waited != 0 {
				t.Errorf("waited %v, want the turn at the release", waited)
			}
		}
	})
}
