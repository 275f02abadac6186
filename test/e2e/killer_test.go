package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// killing is a consumer whose handler kills its process on the event "killer".
// The lease is as long as its successors have to wait.
func killing(s *protocol.Setup) {
	s.Kill, s.MaxAttempts = []string{"killer"}, 3
	brief(s)
}

// TestKillerMessage restarts a service each time an event has killed it.
func TestKillerMessage(t *testing.T) {
	t.Parallel()
	others := []string{"a", "b", "c", "d", "e", "f"}
	start := func(t *testing.T) *world {
		t.Helper()
		w := newWorld(t)
		p := w.producer(t, new(events))
		for _, e := range append(slices.Clone(others[:3]), "killer") {
			w.send(t, p, e)
		}
		for _, e := range others[3:] {
			w.send(t, p, e)
		}
		return w
	}
	inModes(t, "B83 ends in DEAD, and the others are processed", func(t *testing.T, mode func(*protocol.Setup)) {
		w := start(t)
		deaths := w.restart(t, 1, w.setup(consuming, mode, killing))
		wantKiller(t, w, others)
		// In Atomic mode the first death left no trace but the run without its end.
		if deaths < 3 || deaths > 4 {
			t.Errorf("%d deaths, want 3 that count, and one before", deaths)
		}
	})
	inModes(t, "B83 with two replicas", func(t *testing.T, mode func(*protocol.Setup)) {
		w := start(t)
		deaths := w.restart(t, 2, w.setup(consuming, mode, killing))
		wantKiller(t, w, others)
		if deaths < 3 || deaths > 6 {
			t.Errorf("%d deaths, want 3 that count, and few before", deaths)
		}
	})
}

// restart keeps n replicas running until the killer is DEAD and nothing is open,
// and says how many have died.
func (w *world) restart(t *testing.T, n int, s protocol.Setup) (deaths int) {
	t.Helper()
	replicas := make([]*child, n)
	w.until(t, "the killer DEAD, and nothing open", func() (bool, string) {
		for i, c := range replicas {
			if c != nil && c.ended() {
				if !c.sigkilled() {
					t.Fatalf("replica ended with %v, want it killed", c.cmd.ProcessState)
				}
				deaths++
			}
			if c == nil || c.ended() {
				replicas[i] = w.spawn(t, s)
			}
		}
		r, err := w.store.Find(w.ctx, "killer", w.handler)
		if err != nil && !errors.Is(err, txmq.ErrNotFound) {
			t.Fatal(err)
		}
		c := w.tally(t)
		return r.Status == model.Dead && c.open == 0 && c.effects >= c.committed-1, fmt.Sprintf("%+v after %d deaths, %v", r, deaths, c)
	})
	for _, c := range replicas {
		c.stop(t)
	}
	return deaths
}

func wantKiller(t *testing.T, w *world, others []string) {
	t.Helper()
	r := w.record(t, "killer")
	if r.Status != model.Dead || r.RetryCnt != 3 || !strings.Contains(r.LastError, "workers of earlier runs died") {
		t.Errorf("record of the killer = %+v, want DEAD, since its workers died", r)
	}
	c := w.tally(t)
	if c.effects != len(others) || c.double != 0 || c.phantom != 0 || c.dead != 1 || c.balance != 10*len(others) {
		t.Errorf("tally = %v, want %d others processed once", c, len(others))
	}
	for _, e := range others {
		if r := w.record(t, e); r.Status != model.Success {
			t.Errorf("record of %s = %+v, want SUCCESS", e, r)
		}
	}
}
