package e2e

import (
	"testing"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// TestKillProducer ends a producer with SIGKILL between each two steps of a
// transactional send. Its successor finds what it left, and the caller asks
// again, as a user does who saw no answer.
func TestKillProducer(t *testing.T) {
	t.Parallel()
	t.Run("before the half", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := w.ready(t, w.setup(producing), at(fault.SendBeforeHalf, "kill"))
		first.do(t, sending("a"))
		first.killedAt(t, fault.SendBeforeHalf)
		if sent := first.all(line("HalfSent", "")); sent != nil {
			t.Errorf("halves = %+v, want none", sent)
		}
		second := w.ready(t, w.setup())
		second.do(t, sending("a"))
		w.settled(t, "a")
	})

	t.Run("between the half and BEGIN", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		first := w.ready(t, w.setup(producing), at(fault.SendAfterHalf, "kill"))
		first.do(t, sending("a"))
		first.killedAt(t, fault.SendAfterHalf)
		orphaned(t, w, o, first)
	})

	t.Run("inside the local function", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		first := w.ready(t, w.setup(producing))
		first.do(t, protocol.Command{Do: protocol.DoSend, Event: "a", Body: "{}", Hold: true})
		first.await(t, "the effect, uncommitted", line(protocol.Local, "a"))
		first.kill(t)
		orphaned(t, w, o, first)
	})

	t.Run("between the local function and COMMIT", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		first := w.ready(t, w.setup(producing), at(fault.SendBeforeCommit, "kill"))
		first.do(t, sending("a"))
		first.killedAt(t, fault.SendBeforeCommit)
		orphaned(t, w, o, first)
	})

	t.Run("between COMMIT and end-transaction", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		first := w.ready(t, w.setup(producing), at(fault.SendAfterCommit, "kill"))
		first.do(t, sending("a"))
		first.killedAt(t, fault.SendAfterCommit)

		second := w.ready(t, w.setup())
		w.visible(t, o, "a", 1) // by a check-back: nobody sends again
		second.await(t, "Commit", line("Checked", "a", verdict("commit")))
		w.settled(t, "a")
		second.do(t, sending("a"))
		if l := second.await(t, "the second call", line("SendEnded", "a")); l.Err == "" || l.Verdict != "rollback" {
			t.Errorf("second call = %+v, want refused as a duplicate", l)
		}
		w.check(t)
	})
}

// TestKillListener is the same for the client's own producer with a
// checker.Listener, whose successor is a producer of txmq, and the reverse.
func TestKillListener(t *testing.T) {
	t.Parallel()
	raw := func(s *protocol.Setup) { s.Raw = true }
	for _, point := range []fault.Name{fault.SendAfterHalf, fault.SendAfterLog, fault.SendBeforeCommit} {
		t.Run("killed at "+string(point), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.observer(t)
			first := w.ready(t, w.setup(producing, raw), at(point, "kill"))
			first.do(t, sending("a"))
			first.killedAt(t, point)
			orphaned(t, w, o, first)
		})
	}
	for name, killed := range map[string]func(*protocol.Setup){"the listener": raw, "the producer": func(*protocol.Setup) {}} {
		t.Run("between COMMIT and end-transaction: "+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.observer(t)
			first := w.ready(t, w.setup(producing, killed), at(fault.SendAfterCommit, "kill"))
			first.do(t, sending("a"))
			first.killedAt(t, fault.SendAfterCommit)
			second := w.ready(t, w.setup(func(s *protocol.Setup) { s.Raw = name == "the producer" }))
			second.do(t, sending("b")) // a raw client that has sent nothing is not asked (Q04)
			second.await(t, "Commit", line("Checked", "a", verdict("commit")))
			w.visible(t, o, "a", 1)
			w.settled(t, "a", "b")
			second.do(t, sending("a"))
			if l := second.await(t, "the second call", line("SendEnded", "a")); l.Err == "" || l.Verdict != "rollback" {
				t.Errorf("second call = %+v, want refused as a duplicate", l)
			}
			w.check(t)
			second.stop(t)
		})
	}
}

// orphaned: a half without transaction. The successor, which sends nothing,
// answers for it with a fence; nothing is visible or left in the database; and
// then the same operation commits, once.
func orphaned(t *testing.T, w *world, o *observer, first *child) {
	t.Helper()
	half := first.await(t, "the half", line("HalfSent", "a"))
	second := w.ready(t, w.setup())
	if got := w.attempt(t, half.Attempt); got != model.Fenced {
		t.Errorf("attempt = %s, want FENCED", got)
	}
	second.await(t, "Rollback", line("Checked", "a", verdict("rollback")))
	if c := w.tally(t); c.committed+c.effects+o.count("a") != 0 {
		t.Errorf("%v and %d deliveries of a transaction that died", c, o.count("a"))
	}
	second.do(t, sending("a"))
	w.visible(t, o, "a", 1)
	w.settled(t, "a")
	if n := o.count("a"); n != 1 {
		t.Logf("%d deliveries of one commit; the broker may do that", n)
	}
}
