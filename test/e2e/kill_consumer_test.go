package e2e

import (
	"testing"
	"time"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// inModes runs a test in both modes of a handler.
func inModes(t *testing.T, name string, run func(t *testing.T, mode func(*protocol.Setup))) {
	t.Helper()
	t.Run(name+", atomic", func(t *testing.T) { t.Parallel(); run(t, func(*protocol.Setup) {}) })
	t.Run(name+", tracked", func(t *testing.T) { t.Parallel(); run(t, tracked) })
}

// brief is a lease that its successors need not wait for long.
func brief(s *protocol.Setup) { s.Lease, s.Deadline = 2*time.Second, 1900*time.Millisecond }

// TestKillConsumer ends a consumer with SIGKILL between each two steps of a
// delivery. The message is delivered again, and its effect is one.
func TestKillConsumer(t *testing.T) {
	t.Parallel()
	inModes(t, "after receipt, before the claim", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, mode), at(fault.ConsumeReceived, "kill@2"))
		first.killedAt(t, fault.ConsumeReceived)
		if n := w.number(t, "SELECT COUNT(*) FROM t_msg_consume WHERE event_id = 'a'"); n != 0 {
			t.Errorf("%d records before the claim", n)
		}
		w.ready(t, w.setup(consuming, mode))
		w.settled(t, "a", "warm")
		wantRecord(t, w, "a", 0)
	})

	inModes(t, "B19 inside the handler, after its effect", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, mode, brief, func(s *protocol.Setup) { s.HoldAfter = []string{"a"} }))
		first.await(t, "the effect, uncommitted", line(protocol.Holding, "a"))
		first.kill(t)
		second := w.ready(t, w.setup(consuming, mode))
		w.settled(t, "a", "warm")
		done := second.await(t, "done", line("Delivered", "a", outcome("done")))
		if wantRuns := w.record(t, "a").RetryCnt + 1; done.Run != wantRuns {
			t.Errorf("run %d, the record says %d", done.Run, wantRuns)
		}
	})

	inModes(t, "between the handler and COMMIT", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, mode, brief), at(fault.ConsumeAfterHandler, "kill@2"))
		first.killedAt(t, fault.ConsumeAfterHandler)
		if n := w.number(t, "SELECT COUNT(*) FROM e2e_share WHERE event = 'a'"); n != 0 {
			t.Errorf("%d effects before COMMIT", n)
		}
		w.ready(t, w.setup(consuming, mode))
		w.settled(t, "a", "warm")
	})

	inModes(t, "B19 between COMMIT and the acknowledgement", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, mode), at(fault.ConsumeAfterCommit, "kill@2"))
		first.killedAt(t, fault.ConsumeAfterCommit)
		w.settled(t, "a", "warm") // by the dead one
		second := w.ready(t, w.setup(consuming, mode))
		second.await(t, "the duplicate", line("Delivered", "a", outcome("duplicate")))
		if runs := second.all(line(protocol.Handler, "a")); runs != nil {
			t.Errorf("the handler ran again: %+v", runs)
		}
		w.settled(t, "a", "warm")
		wantRecord(t, w, "a", 0)
	})

	t.Run("B20 after the claim, take-over at a later delivery", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, tracked, func(s *protocol.Setup) {
			s.Lease, s.Deadline = 6*time.Second, 5*time.Second // longer than a start
		}), at(fault.ConsumeAfterClaim, "kill@2"))
		first.killedAt(t, fault.ConsumeAfterClaim)
		held := w.record(t, "a")
		if held.Status != model.Processing || held.Version != 1 {
			t.Errorf("record after the kill = %+v, want PROCESSING, version 1", held)
		}

		second := w.ready(t, w.setup(consuming, tracked))
		w.settled(t, "a", "warm")
		done := second.await(t, "done", line("Delivered", "a", outcome("done")))
		if !done.TookOver || done.Run != 2 {
			t.Errorf("done = %+v, want run 2, taken over", done)
		}
		for _, l := range second.all(line("Delivered", "a")) { // those before the lease was over
			if l.Outcome != "done" && l.Outcome != "in_progress" {
				t.Errorf("delivery = %+v, want in_progress until the take-over", l)
			}
		}
		wantRecord(t, w, "a", 1)
		if r := w.record(t, "a"); r.Version != 2 {
			t.Errorf("version = %d, want 2: one take-over", r.Version)
		}
	})

	t.Run("after the claim, swept before any delivery", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.victim(t, w.setup(consuming, tracked, brief), at(fault.ConsumeAfterClaim, "kill@2"))
		first.killedAt(t, fault.ConsumeAfterClaim)

		sweeper := w.ready(t, w.setup(func(s *protocol.Setup) { s.ProducerGroup, s.ConsumerGroup, s.Jobs = "", "", true }))
		sweeper.await(t, "swept", line("Swept", "a"))
		if r := w.record(t, "a"); r.Status != model.Fail || r.LastError == "" {
			t.Errorf("record after the sweep = %+v, want FAIL with a reason", r)
		}
		sweeper.stop(t)
		second := w.ready(t, w.setup(consuming, tracked))
		w.settled(t, "a", "warm")
		if done := second.await(t, "done", line("Delivered", "a", outcome("done"))); done.TookOver || done.Run != 2 {
			t.Errorf("done = %+v, want run 2, after FAIL", done)
		}
		wantRecord(t, w, "a", 1)
	})
}

// victim is a consumer that has consumed one event, and gets another. (Killed
// while it starts, a heart-beat of its may still be under way; see patience.)
func (w *world) victim(t *testing.T, s protocol.Setup, faults ...string) *child {
	t.Helper()
	p := w.producer(t, new(events))
	c := w.ready(t, s, faults...)
	w.send(t, p, "warm")
	c.await(t, "the first event", line("Delivered", "warm", outcome("done")))
	w.send(t, p, "a")
	return c
}

func wantRecord(t *testing.T, w *world, event string, retries int) {
	t.Helper()
	if r := w.record(t, event); r.Status != model.Success || r.RetryCnt != retries || r.Owner != "" {
		t.Errorf("record = %+v, want SUCCESS with retry_cnt %d and no owner", r, retries)
	}
}
