package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
)

// bundle is what a test on the real broker starts from: names of its own, one
// topic with one queue, and a proxy for those who want to look or to break.
type bundle struct {
	ns, broker, topic, group string
	keys                     remoting.Keys // for what the test does itself
	proxy                    *wireproxy.Proxy
}

var serial atomic.Int64

func setup(t *testing.T) bundle {
	t.Helper()
	t.Parallel()
	b := newBundle(t, testenv.NameServer(t), testenv.Broker(t))
	p, err := wireproxy.Start(t.Context(), b.ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		if err := p.Err(); err != nil {
			t.Errorf("proxy: %v", err)
		}
	})
	b.proxy = p
	return b
}

// newBundle has no proxy.
func newBundle(t *testing.T, ns, broker string) bundle {
	t.Helper()
	b := bundle{ns: ns, broker: broker}
	name := fmt.Sprintf("rocketmq-%d-%d", time.Now().UnixMilli(), serial.Add(1))
	b.topic, b.group = name, "g-"+name
	b.makeTopic(t, b.topic)
	return b
}

func (b bundle) makeTopic(t *testing.T, topic string) {
	t.Helper()
	b.makeTopicOnce(t, topic)
	t.Cleanup(func() {
		for addr, code := range map[string]int{b.broker: remoting.DeleteTopicInBroker, b.ns: remoting.DeleteTopicInNameSrv} {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, _ = b.keys.Call(ctx, addr, remoting.Request(code, map[string]string{"topic": topic}, nil))
		}
	})
}

// makeTopicOnce leaves the topic to those who come after.
func (b bundle) makeTopicOnce(t *testing.T, topic string) {
	t.Helper()
	brokers := []remoting.BrokerAddr{{Name: "broker-a", Addr: b.broker}}
	at := txmq.Broker{NameServers: []string{b.ns}, AccessKey: b.keys.AccessKey, SecretKey: b.keys.SecretKey}
	if err := makeTopic(t.Context(), at, topic, brokers); err != nil {
		t.Fatal(err)
	}
}

// offset is the group's committed offset in the topic's queue, -1 for none.
func (b bundle) offset(t *testing.T) int64 {
	t.Helper()
	res, err := remoting.Call(t.Context(), b.broker, remoting.Request(remoting.QueryConsumerOffset, map[string]string{
		"consumerGroup": b.group, "topic": b.topic, "queueId": "0",
	}, nil))
	var code *remoting.CodeError
	if errors.As(err, &code) && code.Code == remoting.ResQueryNotFound {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(res.ExtFields["offset"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b bundle) sender(t *testing.T) *Sender {
	t.Helper()
	return b.senderOf(t, at(b.ns))
}

func (b bundle) senderOf(t *testing.T, broker txmq.Broker) *Sender {
	t.Helper()
	s, err := NewSender(SenderConfig{Broker: broker, Group: "s-" + b.group})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return s
}

func (b bundle) send(t *testing.T, s *Sender, events ...string) {
	t.Helper()
	for _, e := range events {
		if _, err := s.Send(t.Context(), message(b.topic, e), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (b bundle) consume(t *testing.T, handle func(context.Context, *primitive.MessageExt) Result, change ...func(*PushConfig)) *PushConsumer {
	t.Helper()
	cfg := PushConfig{Broker: at(b.ns), Group: b.group, Subscriptions: []Subscription{{Topic: b.topic}}, Handle: handle}
	for _, f := range change {
		f(&cfg)
	}
	c, err := NewPushConsumer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return c
}

func event(m *primitive.MessageExt) string { return m.GetProperty(txmq.PropertyEventID) }

// eventually waits until ok, which something outside the process decides.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	done := false
	_ = loop.Loop{Interval: 20 * time.Millisecond, Step: func(context.Context) (bool, error) {
		if done = ok(); done {
			stop()
		}
		return false, nil
	}}.Run(ctx)
	if !done {
		t.Fatalf("never: %s", what)
	}
}

func unknown(Half) txmq.Verdict { return txmq.Unknown }

// askedFor answers check-backs Commit and reports their events.
func askedFor() (chan string, func(context.Context, *primitive.MessageExt) txmq.Verdict) {
	asked := make(chan string, 100)
	return asked, func(_ context.Context, m *primitive.MessageExt) txmq.Verdict {
		asked <- event(m)
		return txmq.Commit
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()

	t.Run("B01 every producer of a process gets its checks", func(t *testing.T) {
		b := setup(t)
		seen := make(chan string, 100)
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- event(m)
			return Result{Kind: Ack}
		}, func(c *PushConfig) { c.Group = "ga-" + b.group }) // and first, under a producer's group
		ends := make(chan string, 100)
		b.proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			if f.Code == remoting.EndTransaction && f.ExtFields["fromTransactionCheck"] == "true" {
				ends <- f.ExtFields["producerGroup"]
			}
		})
		askedA, checkA := askedFor()
		askedB, checkB := askedFor()
		for _, x := range []struct {
			group string
			check func(context.Context, *primitive.MessageExt) txmq.Verdict
		}{{"ga-" + b.group, checkA}, {"gb-" + b.group, checkB}} {
			p := startTx(t, TxConfig{Broker: at(b.proxy.NameServer()), Group: x.group, Topics: []string{b.topic}, Check: x.check})
			r, err := p.SendHalf(t.Context(), message(b.topic, x.group), nil, unknown)
			if err != nil || !r.Ran || r.Verdict != txmq.Unknown {
				t.Fatalf("SendHalf = %+v, %v", r, err)
			}
		}
		if got := receive(t, askedA, "check of A"); got != "ga-"+b.group {
			t.Errorf("A is asked about %s", got)
		}
		if got := receive(t, askedB, "check of B"); got != "gb-"+b.group {
			t.Errorf("B is asked about %s", got)
		}
		got := map[string]bool{}
		for len(got) < 2 {
			got[receive(t, ends, "end-transaction")] = true
		}
		for range 2 {
			receive(t, seen, "committed message")
		}
	})

	t.Run("B02 an idle producer gets its predecessor's check", func(t *testing.T) {
		b := setup(t)
		before := startTx(t, TxConfig{Broker: at(b.ns), Group: b.group, Topics: []string{b.topic}})
		if _, err := before.SendHalf(t.Context(), message(b.topic, "e"), nil, unknown); err != nil {
			t.Fatal(err)
		}
		if err := before.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		beats := make(chan time.Time, 100)
		ended := make(chan string, 100)
		b.proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			switch {
			case f.Code == remoting.Heartbeat && !f.IsResponse() && bytes.Contains(f.Body, []byte(b.group)):
				beats <- time.Now()
			case f.Code == remoting.EndTransaction:
				ended <- f.ExtFields["commitOrRollback"]
			}
		})
		began := time.Now()
		asked, check := askedFor()
		startTx(t, TxConfig{Broker: at(b.proxy.NameServer()), Group: b.group, Topics: []string{b.topic}, Check: check})
		if took := receive(t, beats, "heart-beat").Sub(began); took > 2*time.Second {
			t.Errorf("first heart-beat with the group after %v, want 2s at most", took)
		}
		if got := receive(t, asked, "check"); got != "e" {
			t.Errorf("asked about %s, want e", got)
		}
		if got := receive(t, ended, "end-transaction"); got != "8" {
			t.Errorf("commitOrRollback = %s, want 8", got)
		}
		for _, code := range []int{remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage} {
			if n := b.proxy.Count(code); n != 0 {
				t.Errorf("%d requests %d, want 0: the warm-up sends nothing", n, code)
			}
		}
	})

	t.Run("B02 without topics, and with one that does not exist", func(t *testing.T) {
		b := setup(t)
		for _, topics := range [][]string{nil, {"absent-" + b.topic}} {
			group := fmt.Sprintf("%d-%s", len(topics), b.group)
			beat := make(chan struct{}, 100)
			stop := b.proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
				if f.Code == remoting.Heartbeat && bytes.Contains(f.Body, []byte(group)) {
					beat <- struct{}{}
				}
			})
			startTx(t, TxConfig{Broker: at(b.proxy.NameServer()), Group: group, Topics: topics})
			receive(t, beat, "heart-beat")
			stop()
		}
	})

	t.Run("B09 a check that panics or hangs holds up no other", func(t *testing.T) {
		b := setup(t)
		release := make(chan struct{})
		t.Cleanup(sync.OnceFunc(func() { close(release) })) // before Close, which waits
		asked := make(chan string, 100)
		var once sync.Map
		p := newTx(t, TxConfig{
			Broker: at(b.ns), Group: b.group, Topics: []string{b.topic}, CheckTimeout: 300 * time.Millisecond,
			Check: func(_ context.Context, m *primitive.MessageExt) txmq.Verdict {
				e := event(m)
				if _, again := once.LoadOrStore(e, nil); !again {
					switch e {
					case "panics":
						panic("boom")
					case "hangs":
						<-release
					}
				}
				asked <- e
				return txmq.Commit
			},
		})
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, e := range []string{"panics", "hangs", "e1", "e2", "e3"} {
			if _, err := p.SendHalf(t.Context(), message(b.topic, e), nil, unknown); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]bool{}
		for len(got) < 5 { // the first two at their second check
			got[receive(t, asked, "check")] = true
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want it to miss the hanging check", err)
		}
	})
}
