package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// The two processes of these tests get the same message at the same time
// because each is a consumer group of its own; the handler's name, which is the
// scope of an event, is the same. (In one group a stopped process keeps its
// queue for as long as its connection lives.)

func holding(s *protocol.Setup) { s.HoldBefore = []string{"a"} }

// other is the second group.
func (w *world) other(s *protocol.Setup) { s.ConsumerGroup = "o-" + w.topic }

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	inModes(t, "B22 a second delivery while the first still runs", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		w.send(t, w.producer(t, new(events)), "a")
		first := w.ready(t, w.setup(consuming, mode, holding))
		first.await(t, "the handler", line(protocol.Holding, "a"))
		second := w.ready(t, w.setup(consuming, mode, w.other))
		second.await(t, "in progress", line("Delivered", "a", outcome("in_progress")))
		if runs := second.all(line(protocol.Handler, "a")); runs != nil {
			t.Errorf("two handlers at a time: %+v", runs)
		}
		first.do(t, protocol.Command{Do: protocol.DoRelease})
		first.await(t, "done", line("Delivered", "a", outcome("done")))
		second.await(t, "duplicate", line("Delivered", "a", outcome("duplicate")))
		w.settled(t, "a")
		wantRecord(t, w, "a", 0)
	})

	inModes(t, "many events, two processes on each key", func(t *testing.T, mode func(*protocol.Setup)) {
		w := newWorld(t)
		p := w.producer(t, new(events))
		names := []string{}
		for _, e := range "abcdefghijklmnopqrst" {
			names = append(names, string(e))
			w.send(t, p, string(e))
		}
		children := []*child{w.spawn(t, w.setup(consuming, mode)), w.spawn(t, w.setup(consuming, mode, w.other))}
		w.settled(t, names...)
		for _, e := range names {
			for _, c := range children { // each is told in the end that it is done
				c.await(t, "the end of "+e, func(l protocol.Line) bool {
					return l.Type == "Delivered" && l.Event == e && (l.Outcome == "done" || l.Outcome == "duplicate")
				})
			}
		}
		w.check(t)
	})
}

func TestZombie(t *testing.T) {
	t.Parallel()
	t.Run("wakes when its successor is done", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.send(t, w.producer(t, new(events)), "a")
		zombie := asleep(t, w)
		second := w.ready(t, w.setup(consuming, tracked, w.other))
		if done := second.await(t, "done", line("Delivered", "a", outcome("done"))); !done.TookOver || done.Run != 2 {
			t.Errorf("done = %+v, want run 2, taken over", done)
		}
		wake(t, zombie)
		w.settled(t, "a")
		wantRecord(t, w, "a", 1)
	})

	t.Run("wakes while its successor works", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.send(t, w.producer(t, new(events)), "a")
		zombie := asleep(t, w)
		second := w.ready(t, w.setup(consuming, tracked, w.other, holding))
		second.await(t, "the take-over", line(protocol.Holding, "a"))
		wake(t, zombie)
		if r := w.record(t, "a"); r.Status != model.Processing || r.Version != 2 {
			t.Errorf("record = %+v, want the successor's: PROCESSING, version 2", r)
		}
		second.do(t, protocol.Command{Do: protocol.DoRelease})
		second.await(t, "done", line("Delivered", "a", outcome("done")))
		w.settled(t, "a")
		wantRecord(t, w, "a", 1)
	})

	// Its deadline is not over, and no heartbeat tells it: only the guard in
	// Succeed stands between it and a second effect.
	t.Run("finishes in time though its lease was taken", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.send(t, w.producer(t, new(events)), "a")
		long := func(s *protocol.Setup) { s.Lease, s.Deadline = 10*time.Minute, 9*time.Minute }
		first := w.ready(t, w.setup(consuming, tracked, holding, long))
		first.await(t, "the handler", line(protocol.Holding, "a"))
		_, err := w.sql.ExecContext(w.ctx, "UPDATE t_msg_consume SET lease_until = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND")
		must(t, err)
		second := w.ready(t, w.setup(consuming, tracked, w.other, holding, long))
		second.await(t, "the take-over", line(protocol.Holding, "a"))

		first.do(t, protocol.Command{Do: protocol.DoRelease})
		first.await(t, "the loss", line("LeaseLost", "a"))
		if l := first.await(t, "its end", line("Delivered", "a")); l.Outcome != "retry" || l.Err == "" {
			t.Errorf("first = %+v, want retry: lease lost", l)
		}
		second.do(t, protocol.Command{Do: protocol.DoRelease})
		second.await(t, "done", line("Delivered", "a", outcome("done")))
		w.settled(t, "a")
		wantRecord(t, w, "a", 1)
	})
}

// asleep is a worker that was stopped in its handler, with a lease of 2 s.
func asleep(t *testing.T, w *world) *child {
	t.Helper()
	z := w.ready(t, w.setup(consuming, tracked, holding, brief))
	z.await(t, "the handler", line(protocol.Holding, "a"))
	z.signal(t, syscall.SIGSTOP)
	return z
}

// wake lets a zombie go on, its handler with it, and waits for what it says.
func wake(t *testing.T, z *child) {
	t.Helper()
	z.do(t, protocol.Command{Do: protocol.DoRelease})
	z.signal(t, syscall.SIGCONT)
	if l := z.await(t, "its end", line("Delivered", "a")); l.Outcome == "done" || l.Outcome == "dead" {
		t.Errorf("the zombie's delivery = %+v, want it refused", l)
	}
	if runs := z.all(line(protocol.Handler, "a")); len(runs) != 1 {
		t.Errorf("the zombie ran %d times, want 1", len(runs))
	}
}
