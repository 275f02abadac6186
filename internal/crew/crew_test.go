package crew

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestCrew(t *testing.T) {
	t.Run("a goroutine is kept for the next function", func(t *testing.T) {
		c := new(Crew)
		defer c.Close()
		for range 100 {
			if !c.Do(func() {}) {
				t.Fatal("Do = false, want that it returned")
			}
		}
		if len(c.idle) != 1 {
			t.Errorf("%d goroutines are kept, want 1", len(c.idle))
		}
	})

	t.Run("one that was ended is not", func(t *testing.T) {
		c := new(Crew)
		defer c.Close()
		if c.Do(runtime.Goexit) {
			t.Error("Do = true, want that the goroutine was ended")
		}
		if len(c.idle) != 0 {
			t.Errorf("%d goroutines are kept, want none", len(c.idle))
		}
		ran := false
		if !c.Do(func() { ran = true }) || !ran {
			t.Error("the next function did not run")
		}
	})

	t.Run("a nil one keeps none", func(t *testing.T) {
		var c *Crew
		ran := false
		if !c.Do(func() { ran = true }) || !ran {
			t.Error("the function did not run")
		}
	})

	t.Run("Do returns after its own function, whoever runs beside it", func(t *testing.T) {
		c := new(Crew)
		defer c.Close()
		var sum atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for i := range 200 {
					got := 0
					c.Do(func() { got = i; sum.Add(1) })
					if got != i {
						t.Errorf("got %d, want %d", got, i)
					}
				}
			})
		}
		wg.Wait()
		if sum.Load() != 16*200 || len(c.idle) > 16 {
			t.Errorf("%d functions ran on %d goroutines, want %d on at most 16", sum.Load(), len(c.idle), 16*200)
		}
	})

	t.Run("Close leaves none behind, and what runs goes on", func(t *testing.T) {
		c := new(Crew)
		begun, end, over := make(chan struct{}), make(chan struct{}), make(chan bool)
		go func() { over <- c.Do(func() { close(begun); <-end }) }()
		<-begun
		c.Do(func() {})
		c.Close()
		close(end)
		if !<-over {
			t.Error("Do = false, want that it returned")
		}
		if !c.Do(func() {}) || len(c.idle) != 0 {
			t.Errorf("after Close: %d goroutines are kept, want none", len(c.idle))
		}
	})
}
