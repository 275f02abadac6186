package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
)

// gated is a handler that waits until its event is let go, whatever its context
// says, and then does its effect.
type gated struct {
	w    *world
	mu   sync.Mutex
	runs map[string]int
	in   chan string              // who has begun
	gate map[string]chan struct{} // who has to wait
	busy sync.WaitGroup
}

func (w *world) gated(waiting ...string) *gated {
	g := &gated{w: w, runs: map[string]int{}, in: make(chan string, 2000), gate: map[string]chan struct{}{}}
	for _, e := range waiting {
		g.gate[e] = make(chan struct{})
	}
	return g
}

func (g *gated) handle(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	g.busy.Add(1)
	defer g.busy.Done()
	g.mu.Lock()
	g.runs[d.EventID]++
	gate := g.gate[d.EventID]
	g.mu.Unlock()
	g.in <- d.EventID
	if gate != nil {
		<-gate
	}
	return g.w.share(ctx, tx, d) // all write one row, so it comes last
}

func (g *gated) open(events ...string) {
	for _, e := range events {
		close(g.gate[e])
	}
}

func (g *gated) counts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.runs)
}

// begun waits until n handlers have begun.
func (g *gated) begun(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.in:
		case <-g.w.ctx.Done():
			t.Fatalf("%d handlers have not begun, only %v", n, g.counts())
		}
	}
}

// does is the handler's work in one of both modes.
func (g *gated) does(work func(consumer.Func) consumer.Work, workers int, drain time.Duration) func(*consumer.Config) {
	return func(c *consumer.Config) {
		c.Handlers[0].Do, c.Workers, c.Drain = work(g.handle), workers, drain
	}
}

// inWorks runs a test with both kinds of work.
func inWorks(t *testing.T, name string, run func(t *testing.T, work func(consumer.Func) consumer.Work)) {
	t.Helper()
	t.Run(name+", atomic", func(t *testing.T) { t.Parallel(); run(t, consumer.Atomic) })
	t.Run(name+", tracked", func(t *testing.T) { t.Parallel(); run(t, consumer.Tracked) })
}

// sender sends without a transaction: what the tests below are about comes
// after.
func (w *world) sender(t *testing.T) func(events ...string) {
	t.Helper()
	s, err := rocketmq.NewSender(rocketmq.SenderConfig{Broker: w.broker(), Group: w.senders, SendTimeout: 10 * time.Second})
	must(t, err)
	must(t, s.Start(w.ctx))
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	return func(events ...string) {
		t.Helper()
		for _, e := range events {
			_, err := s.Send(w.ctx, w.message(e), map[string]string{txmq.PropertyEventID: e})
			must(t, err)
			_, err = w.sql.ExecContext(w.ctx, "INSERT INTO e2e_order (event) VALUES (?)", e)
			must(t, err)
		}
	}
}

func named(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return list
}

// shared says that each event has one effect.
func (w *world) shared(t *testing.T, n int) {
	t.Helper()
	w.until(t, fmt.Sprintf("%d effects, nothing open", n), func() (bool, string) {
		c := w.tally(t)
		return c.effects >= n && c.open == 0, c.String()
	})
	if c := w.tally(t); c.effects != n || c.double != 0 || c.dead != 0 || c.balance != 10*n {
		t.Errorf("tally = %v, want %d effects, one an event", c, n)
	}
}

func TestStopWhileHandling(t *testing.T) {
	t.Parallel()
	inWorks(t, "B50 a stop with ten in flight, six of which end in time", func(t *testing.T, work func(consumer.Func) consumer.Work) {
		w := newWorld(t)
		quick, slow, queued := named("quick", 6), named("slow", 4), named("queued", 5)
		g := w.gated(append(append([]string{}, quick...), slow...)...)
		send := w.sender(t)
		send(append(append([]string{}, quick...), slow...)...)
		const drain = 3 * time.Second
		stop := w.consumer(t, new(events), g.does(work, 10, drain))
		g.begun(t, 10)
		send(queued...)

		stopped := make(chan time.Duration)
		go func() {
			start := time.Now()
			stop()
			stopped <- time.Since(start)
		}()
		g.open(quick...)
		w.until(t, "the six recorded", func() (bool, string) {
			n := w.number(t, "SELECT COUNT(*) FROM t_msg_consume WHERE status = 'SUCCESS'")
			return n == 6, fmt.Sprint(n)
		})
		if took := <-stopped; took < drain || took > drain+10*time.Second {
			t.Errorf("Run ended after %v, want about its Drain, %v", took, drain)
		}
		runs := g.counts()
		for _, e := range queued {
			if runs[e] != 0 {
				t.Errorf("%s began after the stop", e)
			}
		}
		if n := w.number(t, "SELECT COUNT(*) FROM t_msg_consume WHERE event_id LIKE 'slow%' AND status <> 'PROCESSING'"); n != 0 {
			t.Errorf("%d of the unfinished are marked, want them unmarked, or leased", n)
		}
		g.open(slow...) // they wake, too late
		g.busy.Wait()

		next := w.gated()
		w.consumer(t, new(events), next.does(work, 10, drain))
		w.shared(t, 15)
		for _, e := range quick {
			if n := next.counts()[e]; n != 0 {
				t.Errorf("%s ran %d times more", e, n)
			}
		}
	})

	inWorks(t, "B43 a stop while handlers run, which end in the drain", func(t *testing.T, work func(consumer.Func) consumer.Work) {
		w := newWorld(t)
		names := named("e", 8)
		g := w.gated(names...)
		w.sender(t)(names...)
		stop := w.consumer(t, new(events), g.does(work, 8, 30*time.Second))
		g.begun(t, 8)
		var wg sync.WaitGroup
		wg.Go(stop)
		g.open(names...)
		wg.Wait()

		next, seen := w.gated(), new(events)
		w.consumer(t, seen, next.does(work, 8, 30*time.Second))
		w.sender(t)("marker") // one queue: what is before it has come
		next.begun(t, 1)
		if runs := next.counts(); len(runs) != 1 || runs["marker"] != 1 {
			t.Errorf("runs of the successor = %v, want the marker's only", runs)
		}
		w.shared(t, 9)
	})

	inWorks(t, "B43 a rebalance while handlers run", func(t *testing.T, work func(consumer.Func) consumer.Work) {
		w := newBareWorld(t, remoting.Keys{}, testenv.NameServer(t), testenv.Broker(t), 4)
		w.open(t)
		names := named("e", 12)
		g := w.gated(names...)
		w.sender(t)(names...)
		seen, other := new(events), w.gated()
		lease := func(c *consumer.Config) { c.Lease, c.Deadline = 30*time.Second, 29*time.Second } // after which they come again
		w.consumer(t, seen, g.does(work, 12, 30*time.Second), lease)
		g.begun(t, 12)
		w.consumer(t, seen, other.does(work, 12, 30*time.Second), lease) // takes queues over, and what is in flight with them
		one(t, w, seen, "one that is in flight at the other's", func(d txmq.Delivered) bool { return d.Outcome == txmq.OutcomeInProgress })
		g.open(names...)
		one(t, w, seen, "one that was in flight, as a duplicate", func(d txmq.Delivered) bool { return d.Outcome == txmq.OutcomeDuplicate })
		w.shared(t, 12)
		for e, n := range g.counts() {
			if n != 1 || other.counts()[e] != 0 {
				t.Errorf("%s ran %d and %d times, want once in all", e, n, other.counts()[e])
			}
		}
	})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	inWorks(t, "B43 an offset set back to 0 replays a thousand messages, and runs none", func(t *testing.T, work func(consumer.Func) consumer.Work) {
		w := newWorld(t)
		names := named("e", 1000)
		g := w.gated()
		w.sender(t)(names...)
		stop := w.consumer(t, new(events), g.does(work, 16, 30*time.Second))
		w.shared(t, 1000)
		stop()
		_, err := remoting.Call(w.ctx, testenv.Broker(t), remoting.Request(remoting.UpdateConsumerOffset, map[string]string{
			"consumerGroup": w.group, "topic": w.topic, "queueId": "0", "commitOffset": "0",
		}, nil))
		must(t, err)

		before, seen, start := len(g.in), new(events), time.Now()
		w.consumer(t, seen, g.does(work, 16, 30*time.Second))
		w.until(t, "a thousand duplicates", func() (bool, string) {
			n := len(of[txmq.Delivered](seen))
			return n >= 1000, fmt.Sprint(n)
		})
		t.Logf("1000 replayed in %v", time.Since(start))
		for _, d := range of[txmq.Delivered](seen) {
			if d.Outcome != txmq.OutcomeDuplicate { // a wait for a lock would be in progress
				t.Errorf("delivery = %+v, want a duplicate", d)
			}
		}
		if extra := len(g.in) - before; extra != 0 {
			t.Errorf("%d handlers ran again", extra)
		}
		w.shared(t, 1000)
	})
}
