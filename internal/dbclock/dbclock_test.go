package dbclock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOffset(t *testing.T) {
	t.Parallel()
	var none *dbclock.Offset
	if us := none.Microseconds(); us != 0 {
		t.Errorf("nil = %d µs, want 0", us)
	}
	o := &dbclock.Offset{}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { o.Add(time.Second) })
	}
	wg.Wait()
	o.Add(-3 * time.Second)
	if us := o.Microseconds(); us != 7_000_000 {
		t.Errorf("offset = %d µs, want 7 s", us)
	}
}
