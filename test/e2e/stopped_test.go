package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// seed of what a test leaves to chance; TXMQ_SOAK_SEED sets it.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := rand.Uint64N(1_000_000)
	if text := os.Getenv("TXMQ_SOAK_SEED"); text != "" {
		var err error
		n, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("seed %d; TXMQ_SOAK_SEED repeats it", n)
	return rand.New(rand.NewPCG(n, 0))
}

// stop is how one worker of TestStopped is stopped.
type stop struct {
	after  bool // its effect; else before
	finish bool // wakes when its successor is done; else while it works
	// bare: its own deadline is not over when it wakes, and no heartbeat comes,
	// so that only the guard of Succeed refuses it.
	bare bool
}

func (s stop) String() string {
	words := []string{"before its effect", "wakes to a successor at work", "knows by the clock"}
	if s.after {
		words[0] = "after its effect"
	}
	if s.finish {
		words[1] = "wakes to a successor that is done"
	}
	if s.bare {
		words[2] = "knows by the record alone"
	}
	return strings.Join(words, ", ")
}

// TestStopped stops a worker with SIGSTOP in its handler, until its event is
// another's, and lets it go on. Its end is refused, and the effect is one.
func TestStopped(t *testing.T) {
	t.Parallel()
	chance := seed(t)
	for n := range testenv.Rounds(3, 20) {
		s := stop{after: chance.IntN(2) == 0, finish: chance.IntN(2) == 0, bare: n%2 == 0}
		// The effect of a stopped worker locks the balance: its successor can only
		// finish when that is undone.
		s.finish = s.finish && !s.after
		t.Run(fmt.Sprintf("tracked %d, %v", n, s), func(t *testing.T) { t.Parallel(); s.tracked(t) })
		after := chance.IntN(2) == 0
		t.Run(fmt.Sprintf("atomic %d, after its effect: %v", n, after), func(t *testing.T) { t.Parallel(); stoppedAtomic(t, after) })
	}
}

// holdAt holds event a at the chosen place.
func holdAt(after bool) func(*protocol.Setup) {
	return func(s *protocol.Setup) {
		if after {
			s.HoldAfter = []string{"a"}
		} else {
			s.HoldBefore = []string{"a"}
		}
	}
}

func long(s *protocol.Setup) { s.Lease, s.Deadline = 10*time.Minute, 9*time.Minute }

func (s stop) tracked(t *testing.T) {
	w := newWorld(t)
	w.send(t, w.producer(t, new(events)), "a")
	lease := brief
	if s.bare {
		lease = long
	}
	zombie := w.ready(t, w.setup(consuming, tracked, holdAt(s.after), lease))
	zombie.await(t, "the handler", line(protocol.Holding, "a"))
	zombie.signal(t, syscall.SIGSTOP)
	if s.bare {
		_, err := w.sql.ExecContext(w.ctx, "UPDATE t_msg_consume SET lease_until = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND")
		must(t, err)
	}

	second := w.ready(t, w.setup(consuming, tracked, w.other, long, func(p *protocol.Setup) {
		if !s.finish {
			p.HoldBefore = []string{"a"}
		}
	}))
	if s.finish {
		if done := second.await(t, "done", line("Delivered", "a", outcome("done"))); !done.TookOver || done.Run != 2 {
			t.Errorf("done = %+v, want run 2, taken over", done)
		}
	} else {
		second.await(t, "the take-over", line(protocol.Holding, "a"))
	}

	wake(t, zombie)
	if s.bare {
		zombie.await(t, "the loss", line("LeaseLost", "a"))
	}
	if r := w.record(t, "a"); r.Version != 2 || !s.finish && r.Status != model.Processing {
		t.Errorf("record = %+v, want the successor's, version 2", r)
	}
	second.do(t, protocol.Command{Do: protocol.DoRelease})
	second.await(t, "done", line("Delivered", "a", outcome("done")))
	w.settled(t, "a")
	wantRecord(t, w, "a", 1)
}

// stoppedAtomic: an Atomic worker holds its event by its open transaction. The
// server ends that of a worker that says nothing for two seconds.
func stoppedAtomic(t *testing.T, after bool) {
	w := newWorld(t)
	w.send(t, w.producer(t, new(events)), "a")
	zombie := w.ready(t, w.setup(consuming, holdAt(after), long, func(s *protocol.Setup) { s.DSN += "&idle_transaction_timeout=2" }))
	zombie.await(t, "the handler", line(protocol.Holding, "a"))
	zombie.signal(t, syscall.SIGSTOP)

	second := w.ready(t, w.setup(consuming, w.other))
	second.await(t, "done", line("Delivered", "a", outcome("done")))
	for _, l := range second.all(line("Delivered", "a")) { // those before the transaction ended
		if l.Outcome != "done" && l.Outcome != "in_progress" {
			t.Errorf("delivery = %+v, want in_progress until it is done", l)
		}
	}
	zombie.do(t, protocol.Command{Do: protocol.DoRelease})
	zombie.signal(t, syscall.SIGCONT)
	// Its COMMIT has no answer then, and the record says SUCCESS, so that the
	// broker is told so. The row that counts is the successor's all the same.
	zombie.await(t, "its end", line("Delivered", "a"))
	w.settled(t, "a")
	wantRecord(t, w, "a", 0)
	first := 1
	if after {
		first = 2 // 1 was the zombie's
	}
	if id := w.number(t, "SELECT MIN(id) FROM e2e_share"); id != first {
		t.Errorf("the effect is row %d, want %d, the successor's", id, first)
	}
}
