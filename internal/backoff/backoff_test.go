package backoff

import (
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	s := Schedule{Min: time.Second, Max: time.Hour, Factor: 2}
	for failures, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 5000: time.Hour,
	} {
		if got := s.After(failures); got != want {
			t.Errorf("After(%d) = %v, want %v", failures, got, want)
		}
	}
	s.Jitter = 0.2
	seen := map[time.Duration]bool{}
	for range 100 {
		got := s.After(1)
		if got < 800*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("After(1) = %v, want 1s ±20 %%", got)
		}
		seen[got] = true
	}
	if len(seen) == 1 {
		t.Error("After(1) is always the same, want it spread")
	}
	for range 100 {
		if got := s.After(13); got > time.Hour {
			t.Errorf("After(13) = %v, want Max at most", got)
		}
	}
}
