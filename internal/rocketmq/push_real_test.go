package rocketmq

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

func TestPush(t *testing.T) {
	t.Parallel()
	type delivery struct {
		event, topic, broker string
		times                int32
		at                   time.Time
	}
	of := func(m *primitive.MessageExt) delivery {
		return delivery{event(m), m.Topic, m.Queue.BrokerName, m.ReconsumeTimes, time.Now()}
	}

	t.Run("B23 a panic is a retry, and the others go on", func(t *testing.T) {
		b := setup(t)
		b.send(t, b.sender(t), "panics", "exits", "zero", "good")
		seen := make(chan delivery, 100)
		backs := make(chan map[string]string, 100)
		b.proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			if f.Code == remoting.ConsumerSendMsgBack && !f.IsResponse() {
				backs <- f.ExtFields
			}
		})
		c := b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			d := of(m)
			defer func() { seen <- d }()
			switch {
			case d.times > 0 || d.event == "good":
				return Result{Kind: Ack}
			case d.event == "panics":
				panic("boom")
			case d.event == "exits":
				runtime.Goexit()
			}
			return Result{}
		}, func(c *PushConfig) { c.Broker = at(b.proxy.NameServer()) })
		if n := b.proxy.Count(remoting.UpdateAndCreateTopic); n != 1 {
			t.Errorf("%d topics made, want the retry topic", n)
		}
		first := map[string]time.Time{}
		again := 0
		for len(first) < 4 || again < 3 {
			d := receive(t, seen, "delivery")
			if d.topic != b.topic || d.broker != "broker-a" {
				t.Errorf("delivery %+v, want the original topic %s", d, b.topic)
			}
			if d.times == 0 {
				first[d.event] = d.at
				continue
			}
			again++
			if gap := d.at.Sub(first[d.event]); gap > 6*time.Second {
				t.Errorf("%s came again after %v, want about 1s: the retry topic was made in advance", d.event, gap)
			}
		}
		for range 3 {
			back := receive(t, backs, "send-back")
			if back["delayLevel"] != "1" || back["maxReconsumeTimes"] != strconv.Itoa(math.MaxInt32) {
				t.Errorf("send-back = %v, want level 1 and a limit out of reach", back)
			}
		}
		b.consume(t, func(context.Context, *primitive.MessageExt) Result { return Result{} },
			func(c *PushConfig) { c.Broker = at(b.proxy.NameServer()) })
		if n := b.proxy.Count(remoting.UpdateAndCreateTopic); n != 1 {
			t.Errorf("%d topics made, want none for the group's second consumer", n-1)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		eventually(t, "offset past all four", func() bool { return b.offset(t) == 4 })
	})

	t.Run("delays and the dead-letter topic", func(t *testing.T) {
		b := setup(t)
		b.send(t, b.sender(t), "dead", "later")
		levels := make(chan string, 100)
		b.proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			if f.Code == remoting.ConsumerSendMsgBack && !f.IsResponse() {
				levels <- f.ExtFields["delayLevel"]
			}
		})
		c := b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			switch {
			case event(m) == "dead":
				return Result{Kind: DeadLetter, Delay: time.Hour}
			case m.ReconsumeTimes == 0:
				return Result{Kind: Retry, Delay: 2 * time.Minute}
			}
			return Result{Kind: 77}
		}, func(c *PushConfig) { c.Broker = at(b.proxy.NameServer()); c.Workers = 1 })
		got := map[string]bool{receive(t, levels, "send-back"): true, receive(t, levels, "send-back"): true}
		if !got["-1"] || !got["6"] {
			t.Errorf("delay levels %v, want -1 and 6", got)
		}
		eventually(t, "dead-letter topic", func() bool {
			_, err := brokersOf(t.Context(), at(b.ns), "%DLQ%"+b.group)
			return err == nil
		})
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})

	t.Run("B50 close waits for handlers and starts none", func(t *testing.T) {
		b := setup(t)
		events := make([]string, 50)
		for i := range events {
			events[i] = strconv.Itoa(i)
		}
		b.send(t, b.sender(t), events...)
		const workers = 3
		in, out := make(chan struct{}, 100), make(chan struct{})
		var running, most, total atomic.Int32
		c := b.consume(t, func(context.Context, *primitive.MessageExt) Result {
			n := running.Add(1)
			for m := most.Load(); n > m; m = most.Load() {
				if most.CompareAndSwap(m, n) {
					break
				}
			}
			total.Add(1)
			in <- struct{}{}
			<-out
			running.Add(-1)
			return Result{Kind: Ack}
		}, func(c *PushConfig) { c.Workers = workers; c.Broker = at(b.proxy.NameServer()) })
		for range workers {
			receive(t, in, "handler")
		}
		closed := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { closed <- c.Close(context.Background()) })
		eventually(t, "close has begun", func() bool { return c.life.now() == stateClosed })
		select {
		case err := <-closed:
			t.Errorf("Close = %v before the handlers were over", err)
		default:
		}
		close(out)
		if err := receive(t, closed, "Close"); err != nil {
			t.Errorf("Close = %v", err)
		}
		wg.Wait()
		if total.Load() != workers || most.Load() != workers {
			t.Errorf("%d handlers ran, %d at a time; want %d", total.Load(), most.Load(), workers)
		}
		eventually(t, "offset past what was handled, and no further", func() bool { return b.offset(t) == workers })
		if n := b.proxy.Count(remoting.ConsumerSendMsgBack); n != 0 {
			t.Errorf("%d messages sent back, want 0: nothing failed", n)
		}
	})

	t.Run("workers are counted over all topics", func(t *testing.T) {
		b := setup(t)
		other := "other-" + b.topic
		b.makeTopic(t, other)
		s := b.sender(t)
		for range 4 {
			b.send(t, s, "here")
			if _, err := s.Send(t.Context(), message(other, "there"), nil); err != nil {
				t.Fatal(err)
			}
		}
		const workers = 2
		in, out := make(chan string, 100), make(chan struct{})
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			in <- m.Topic
			<-out
			return Result{Kind: Ack}
		}, func(c *PushConfig) {
			c.Workers, c.Subscriptions = workers, append(c.Subscriptions, Subscription{Topic: other})
		})
		for range workers {
			receive(t, in, "handler")
		}
		select {
		case topic := <-in:
			t.Errorf("one handler of %s too many", topic)
		case <-time.After(500 * time.Millisecond):
		}
		close(out)
		for range 8 - workers {
			receive(t, in, "handler")
		}
	})

	t.Run("close waits until results are noted", func(t *testing.T) {
		b := setup(t)
		b.send(t, b.sender(t), "e")
		slow := b.proxy.Inject(wireproxy.Fault{Code: remoting.ConsumerSendMsgBack, Action: wireproxy.DelayReply, For: 300 * time.Millisecond})
		c := b.consume(t, func(context.Context, *primitive.MessageExt) Result { return Result{Delay: time.Hour} },
			func(c *PushConfig) { c.Broker = at(b.proxy.NameServer()) })
		if err := slow.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		eventually(t, "offset past the message that was sent back", func() bool { return b.offset(t) == 1 })
	})

	t.Run("close gives up waiting", func(t *testing.T) {
		b := setup(t)
		b.send(t, b.sender(t), "e")
		in, over := make(chan struct{}, 1), make(chan error, 1)
		c, err := NewPushConsumer(PushConfig{
			Broker: at(b.ns), Group: b.group, Subscriptions: []Subscription{{Topic: b.topic}},
			Handle: func(ctx context.Context, _ *primitive.MessageExt) Result {
				in <- struct{}{}
				<-ctx.Done()
				over <- ctx.Err()
				return Result{Kind: Ack}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		receive(t, in, "handler")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for range 2 {
			if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close = %v, want context.DeadlineExceeded", err)
			}
		}
		if err := receive(t, over, "handler's end"); !errors.Is(err, context.Canceled) {
			t.Errorf("handler's ctx = %v, want context.Canceled", err)
		}
		c.Suspend()
		c.Resume()
	})

	t.Run("suspend holds deliveries back", func(t *testing.T) {
		b := setup(t)
		s := b.sender(t)
		b.send(t, s, "a", "b")
		in, out := make(chan string, 100), make(chan struct{}, 100)
		c := b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			in <- event(m)
			<-out
			return Result{Kind: Ack}
		}, func(c *PushConfig) { c.Workers = 1 })
		first := receive(t, in, "first")
		c.Suspend()
		b.send(t, s, "c")
		out <- struct{}{} // the worker is free now
		select {
		case e := <-in:
			t.Errorf("%s is handled while suspended", e)
		case <-time.After(500 * time.Millisecond):
		}
		c.Resume()
		out <- struct{}{}
		out <- struct{}{}
		got := map[string]bool{first: true, receive(t, in, "second"): true, receive(t, in, "third"): true}
		if len(got) != 3 {
			t.Errorf("handled %v, want a, b, c", got)
		}
	})

	t.Run("a retry of a topic that is subscribed to no more is delivered", func(t *testing.T) {
		b := setup(t)
		s := b.sender(t)
		b.send(t, s, "e")
		sentBack := make(chan struct{}, 1)
		before := b.consume(t, func(context.Context, *primitive.MessageExt) Result {
			sentBack <- struct{}{}
			return Result{}
		})
		receive(t, sentBack, "first delivery")
		if err := before.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := "other-" + b.topic
		b.makeTopic(t, other)
		seen := make(chan delivery, 1)
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- of(m)
			return Result{Kind: Ack}
		}, func(c *PushConfig) { c.Subscriptions = []Subscription{{Topic: other}} })
		if d := receive(t, seen, "retry"); d.topic != b.topic || d.event != "e" || d.times != 1 {
			t.Errorf("delivery %+v, want e of %s, once more", d, b.topic)
		}
	})

	t.Run("tags", func(t *testing.T) {
		b := setup(t)
		s := b.sender(t)
		for _, tag := range []string{"x", "y", "z", "a"} {
			m := message(b.topic, tag)
			m.Tag, m.ShardingKey, m.Keys, m.Properties = tag, "k", []string{"o1", "o2"}, map[string]string{"mine": "ü"}
			if _, err := s.Send(t.Context(), m, map[string]string{txmq.PropertyBorn: "1"}); err != nil {
				t.Fatal(err)
			}
		}
		seen := make(chan string, 100)
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			for name, want := range map[string]string{txmq.PropertyBorn: "1", txmq.PropertyShardingKey: "k", "mine": "ü", "KEYS": "o1 o2", "SHARDING_KEY": "k"} {
				if got := m.GetProperty(name); got != want {
					t.Errorf("property %s = %q, want %q", name, got, want)
				}
			}
			seen <- m.GetTags()
			return Result{Kind: Ack}
		}, func(c *PushConfig) { c.Subscriptions[0].Tags = "x || a" })
		got := receive(t, seen, "message") + receive(t, seen, "message")
		if got != "xa" && got != "ax" {
			t.Errorf("tags %q, want x and a", got)
		}
	})

	t.Run("a topic that does not exist", func(t *testing.T) {
		b := setup(t)
		c, err := NewPushConsumer(PushConfig{
			Broker: at(b.ns), Group: b.group, Subscriptions: []Subscription{{Topic: "absent-" + b.topic}},
			Handle: func(context.Context, *primitive.MessageExt) Result { return Result{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); !errors.Is(err, txmq.ErrRefused) || !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "absent-"+b.topic) {
			t.Errorf("Start = %v, want ErrRefused and ErrNoTopic with the topic", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}
