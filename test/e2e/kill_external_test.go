package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// TestKillExternal ends a consumer with SIGKILL between each two steps of an
// External delivery. The call to the other side is made at least once, again
// only where its mark had not been written, and then under a higher version.
func TestKillExternal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		point   fault.Name // none: inside the handler, after the call
		calls   []string   // the versions of those of the event
		retries int
	}{
		{"after receipt, before the claim", fault.ConsumeReceived, []string{"1"}, 0},
		{"B20 after the claim, before the call", fault.ConsumeAfterClaim, []string{"2"}, 1},
		{"B19 inside the handler, after the call", "", []string{"1", "2"}, 1},
		{"B19 after the handler, before the mark", fault.ConsumeAfterHandler, []string{"1", "2"}, 1},
		{"B19 between the mark and the acknowledgement", fault.ConsumeAfterCommit, []string{"1"}, 0},
	} {
		t.Run(c.name+", external", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			setup := w.setup(consuming, external, brief)
			if c.point == "" {
				held := setup
				held.HoldAfter = []string{"a"}
				first := w.victim(t, held)
				first.await(t, "the call made", line(protocol.Holding, "a"))
				first.kill(t)
			} else {
				first := w.victim(t, setup, at(c.point, "kill@2"))
				first.killedAt(t, c.point)
			}
			second := w.ready(t, setup)
			ended := "done"
			if c.point == fault.ConsumeAfterCommit {
				ended = "duplicate"
			}
			second.await(t, ended, line("Delivered", "a", outcome(ended)))
			w.settled(t, "a", "warm")
			w.wantCalls(t, "a", c.calls...)
			w.wantCalls(t, "warm", "1")
			wantRecord(t, w, "a", c.retries)
		})
	}

	t.Run("B83 ends in DEAD, and each death had a call of its own, external", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		p := w.producer(t, new(events))
		for _, e := range []string{"a", "killer", "b"} {
			w.send(t, p, e)
		}
		if deaths := w.restart(t, 1, w.setup(consuming, external, killing)); deaths != 3 {
			t.Errorf("%d deaths, want 3: each is counted", deaths)
		}
		r := w.record(t, "killer")
		if r.Status != model.Dead || r.RetryCnt != 3 || !strings.Contains(r.LastError, "workers of earlier runs died") {
			t.Errorf("record of the killer = %+v, want DEAD, since its workers died", r)
		}
		// Each death has a call, and each call a higher version. Who waits for its
		// turn beside another event that lost its worker takes two more.
		calls := w.strings(t, "SELECT version FROM e2e_outside WHERE event = ? ORDER BY id", "killer")
		if len(calls) != 3 || calls[0] != "1" || !slices.IsSortedFunc(calls, strings.Compare) || len(slices.Compact(calls)) != 3 {
			t.Errorf("versions of the calls for killer = %v, want 3 that rise from 1", calls)
		}
		for _, e := range []string{"a", "b"} {
			if r := w.record(t, e); r.Status != model.Success {
				t.Errorf("record of %s = %+v, want SUCCESS", e, r)
			}
		}
		if c := w.tally(t); c.effects != 3 || c.double != 0 || c.phantom != 0 || c.lost != 0 {
			t.Errorf("tally = %v, want each of the 3 on the other side once", c)
		}
	})
}

// wantCalls checks the versions of the calls that the other side has had for an
// event, in their order.
func (w *world) wantCalls(t *testing.T, event string, versions ...string) {
	t.Helper()
	if got := w.strings(t, "SELECT version FROM e2e_outside WHERE event = ? ORDER BY id", event); !slices.Equal(got, versions) {
		t.Errorf("versions of the calls for %s = %v, want %v", event, got, versions)
	}
}
