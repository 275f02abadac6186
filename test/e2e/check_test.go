package e2e

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/producer"
	"github.com/txmq/txmq/test/e2e/protocol"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("B02 a restarted idle producer answers its predecessor's check and sends nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.consumer(t, new(events))
		first := w.ready(t, w.setup(producing), at(fault.SendAfterCommit, "kill"))
		first.do(t, sending("a"))
		first.killedAt(t, fault.SendAfterCommit)
		w.until(t, "the commit", func() (bool, string) { c := w.tally(t); return c.committed == 1, c.String() })

		proxy, seen := w.proxy(t), new(events)
		beat := make(chan struct{})
		var once sync.Once
		defer proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			if f.Code == remoting.Heartbeat && bytes.Contains(f.Body, []byte(w.senders)) {
				once.Do(func() { close(beat) })
			}
		})()
		w.producer(t, seen, through(proxy))                        // and never a send
		soon, cancel := context.WithTimeout(w.ctx, 15*time.Second) // 1 s usually; the client's next is 30 s later
		defer cancel()
		select {
		case <-beat:
		case <-soon.Done():
			t.Error("no heart-beat names the idle producer's group")
		}
		one(t, w, seen, "Commit", func(c txmq.Checked) bool { return c.EventID == "a" && c.Verdict == txmq.Commit })
		w.settled(t, "a")
		if n := proxy.Count(remoting.SendMessage) + proxy.Count(remoting.SendMessageV2); n != 0 {
			t.Errorf("%d messages sent by an idle producer, want 0", n)
		}
	})

	t.Run("B09 a check that panics once is Unknown, and later ones work", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		c := w.ready(t, w.setup(func(s *protocol.Setup) { s.Proxy = true }), at(fault.CheckBefore, "panic"))
		for _, e := range []string{"a", "b", "c", "d", "e", "f"} {
			c.do(t, protocol.Command{Do: protocol.DoSend, Event: e, Body: "{}", LoseEnd: true})
		}
		panicked := c.await(t, "the panic", line("Checked", "", func(l protocol.Line) bool { return l.Reason == checker.ReasonPanic }))
		if panicked.Verdict != "unknown" {
			t.Errorf("check that panicked = %+v, want unknown", panicked)
		}
		w.settled(t, "a", "b", "c", "d", "e", "f")
		for _, e := range []string{"a", "b", "c", "d", "e", "f"} {
			c.await(t, "commit of "+e, line("Checked", e, verdict("commit")))
		}
		c.stop(t)
	})

	t.Run("B09 a check that hangs holds up the next for its time-out only", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.consumer(t, new(events))
		hung, wake := make(chan struct{}), make(chan struct{})
		var once sync.Once
		proxy, seen := w.proxy(t), new(events)
		p := w.producer(t, seen, through(proxy), func(c *producer.Config) {
			c.CheckTimeout = time.Second
			c.Foreign = func(*primitive.MessageExt) txmq.Verdict {
				once.Do(func() { close(hung) })
				<-wake
				return txmq.Rollback
			}
		})
		defer close(wake) // before the producer's Close

		// A half of old code in the same group: no property of ours, so Foreign
		// is asked. Its sender goes at once, so all its checks come here.
		old, err := rocketmq.NewTxProducer(rocketmq.TxConfig{
			Broker: txmq.Broker{NameServers: []string{w.ns}}, Group: w.senders, Topics: []string{w.topic},
			Check: func(context.Context, *primitive.MessageExt) txmq.Verdict { return txmq.Unknown },
		})
		must(t, err)
		must(t, old.Start(w.ctx))
		_, err = old.SendHalf(w.ctx, w.message(""), nil, func(rocketmq.Half) txmq.Verdict { return txmq.Unknown })
		must(t, err)
		must(t, old.Close(w.ctx))
		<-hung

		proxy.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1, Match: endOfSend})
		w.send(t, p, "a")
		one(t, w, seen, "the time-out", func(c txmq.Checked) bool {
			return c.Reason == checker.ReasonTimeout && c.Verdict == txmq.Unknown && c.Took < 2*time.Second
		})
		one(t, w, seen, "Commit beside it", func(c txmq.Checked) bool { return c.EventID == "a" && c.Verdict == txmq.Commit })
		w.settled(t, "a")
	})

	t.Run("B78 a group that two databases share", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		o := w.observer(t)
		w.consumer(t, new(events))
		a := w.ready(t, w.setup(producing), at(fault.SendAfterCommit, "kill"))
		a.do(t, sending("a"))
		a.killedAt(t, fault.SendAfterCommit)

		// Service B, in A's producer group with a database of its own, is the
		// only one to be asked.
		b, seen := newWorld(t), new(events)
		b.topic, b.senders = w.topic, w.senders
		b.producer(t, seen)
		one(t, w, seen, "three checks of A's half", func(c txmq.Checked) bool { return c.EventID == "a" && c.Times >= 3 })
		for _, c := range of[txmq.Checked](seen) {
			if c.Verdict != txmq.Unknown || c.Reason != checker.ReasonForeignDB {
				t.Errorf("B's answer = %+v, want Unknown: foreign database", c)
			}
		}
		if n := o.count("a") + b.number(t, "SELECT COUNT(*) FROM t_tx_log"); n != 0 {
			t.Errorf("B's answers made %d messages or fences", n)
		}

		again := w.ready(t, w.setup(producing))
		again.await(t, "Commit", line("Checked", "a", verdict("commit")))
		w.settled(t, "a")
	})
}
