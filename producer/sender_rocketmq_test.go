package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
)

// wire is a topic of its own on a real broker, with a proxy before it.
type wire struct {
	proxy  *wireproxy.Proxy
	addr   string // of the broker, past the proxy
	topic  string
	queues int
	events *recorder
}

func onWire(t *testing.T, version string, queues int) *wire {
	t.Helper()
	ns := testenv.NameServerVersion(t, version)
	w := &wire{
		addr: testenv.BrokerVersion(t, version), queues: queues, events: new(recorder),
		topic: "plain-" + strings.ToLower(rand.Text()[:12]),
	}
	must(t, remoting.CreateTopic(t.Context(), w.addr, w.topic, queues, 6))
	t.Cleanup(func() {
		for addr, code := range map[string]int{w.addr: remoting.DeleteTopicInBroker, ns: remoting.DeleteTopicInNameSrv} {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, _ = remoting.Call(ctx, addr, remoting.Request(code, map[string]string{"topic": w.topic}, nil)) // a tidy broker is a courtesy
			cancel()
		}
	})
	until(t, "the topic's route", func() bool {
		_, err := remoting.Brokers(t.Context(), ns, w.topic)
		return err == nil
	})
	var err error
	w.proxy, err = wireproxy.Start(t.Context(), ns)
	must(t, err)
	t.Cleanup(func() {
		w.proxy.Close()
		must(t, w.proxy.Err())
	})
	return w
}

// sender retries quickly; on a slow machine more answers are late than those
// that the proxy loses, which the tests take as it comes.
func (w *wire) sender(t *testing.T, change ...func(*SenderConfig)) *Sender {
	t.Helper()
	cfg := SenderConfig{
		Broker: txmq.Broker{NameServers: []string{w.proxy.NameServer()}}, Group: "s-" + w.topic,
		Retries: 10, SendTimeout: time.Second, Backoff: Backoff{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond},
		Observe: w.events.observe,
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewSender(cfg)
	must(t, err)
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	return s
}

func (w *wire) message(event string) txmq.Message {
	return txmq.Message{Topic: w.topic, EventID: event, Body: []byte("body of " + event)}
}

// requests counts sends on the wire.
func (w *wire) requests() int {
	return w.proxy.Count(remoting.SendMessage) + w.proxy.Count(remoting.SendMessageV2) + w.proxy.Count(remoting.SendBatchMessage)
}

// fail has the broker answer sends so, the next count of them.
func (w *wire) fail(code, count int) {
	w.proxy.Inject(wireproxy.Fault{
		Code: remoting.SendMessage, Action: wireproxy.Answer, Response: code, Remark: "for a test", Count: count,
	})
}

func (w *wire) loseReplies(count int) *wireproxy.Handle {
	return w.proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.LoseReply, Count: count})
}

// stored reads all queues of the topic from their start, as they lie.
func (w *wire) stored(t *testing.T) [][]*primitive.MessageExt {
	t.Helper()
	all := make([][]*primitive.MessageExt, w.queues)
	for q := range all {
		for {
			res, err := remoting.Call(t.Context(), w.addr, remoting.Request(remoting.PullMessage, map[string]string{
				"consumerGroup": "reader", "topic": w.topic, "queueId": strconv.Itoa(q), "queueOffset": strconv.Itoa(len(all[q])),
				"maxMsgNums": "32", "sysFlag": strconv.Itoa(1 << 2), "commitOffset": "0", "suspendTimeoutMillis": "0",
				"subscription": "*", "subVersion": "0", "expressionType": "TAG",
			}, nil))
			var code *remoting.CodeError
			if errors.As(err, &code) && (code.Code == remoting.ResPullNotFound || code.Code == remoting.ResPullOffsetMoved) {
				break
			}
			must(t, err)
			all[q] = append(all[q], primitive.DecodeMessage(res.Body)...)
		}
	}
	return all
}

// copies waits until so many messages, or more, lie in the topic, and gives
// them.
func (w *wire) copies(t *testing.T, n int) (all []*primitive.MessageExt) {
	t.Helper()
	until(t, strconv.Itoa(n)+" stored messages", func() bool {
		all = slices.Concat(w.stored(t)...)
		return len(all) >= n
	})
	return all
}

var versions = []string{testenv.DefaultVersion, "4.9.7", "5.5.0"}

func TestSenderOnBroker(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run("a lost answer is two copies of one event, on "+version, func(t *testing.T) {
			t.Parallel()
			w := onWire(t, version, 4)
			s := w.sender(t)
			lost := w.loseReplies(1)
			m := w.message("")
			m.Tag, m.Keys, m.Properties = "viewed", []string{"o1", "o2"}, map[string]string{"source": "web"}
			placed, err := s.Send(t.Context(), m)
			must(t, err)
			must(t, lost.Wait(t.Context(), 1))
			if placed.Tries < 2 || w.requests() != placed.Tries {
				t.Errorf("Send = %+v with %d requests, want two or more of both", placed, w.requests())
			}
			all := w.copies(t, 2)
			ids, born := map[string]bool{}, all[0].GetProperty(txmq.PropertyBorn)
			for _, c := range all {
				if c.GetProperty(txmq.PropertyEventID) != placed.EventID || c.GetProperty(txmq.PropertyBorn) != born || born == "" ||
					c.GetTags() != "viewed" || c.GetKeys() != "o1 o2" || c.GetProperty("source") != "web" {
					t.Errorf("copy %v, want event %s born %s, with all that the message had", c.GetProperties(), placed.EventID, born)
				}
				ids[c.MsgId] = true
			}
			if len(ids) != len(all) || !ids[placed.MsgID] {
				t.Errorf("copies have the MsgIds %v, want each its own, and %s among them", ids, placed.MsgID)
			}
			last := all[slices.IndexFunc(all, func(c *primitive.MessageExt) bool { return c.MsgId == placed.MsgID })]
			if last.Queue.QueueId != placed.QueueID || last.QueueOffset != placed.QueueOffset || placed.BrokerName == "" {
				t.Errorf("Send = %+v, the message lies in queue %d at %d", placed, last.Queue.QueueId, last.QueueOffset)
			}
		})
	}

	t.Run("busy is tried again", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t)
		w.fail(remoting.ResSystemBusy, 2)
		w.fail(remoting.ResServiceNotAvailable, 1)
		w.fail(remoting.ResSystemError, 1)
		placed, err := s.Send(t.Context(), w.message("e"))
		must(t, err)
		if placed.Tries != 5 || w.requests() != 5 || len(w.copies(t, 1)) != 1 {
			t.Errorf("Send = %+v with %d requests, want 5 and one message", placed, w.requests())
		}
	})

	t.Run("not durable is tried again", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t, func(c *SenderConfig) { c.Retries = 1 })
		w.fail(remoting.ResFlushDiskTimeout, 2)
		_, err := s.Send(t.Context(), w.message("e"))
		wantError(t, err, txmq.ErrNotDurable)
		wantError(t, err, txmq.ErrMayBeStored)
		w.fail(remoting.ResSlaveNotAvailable, 1)
		placed, err := s.Send(t.Context(), w.message("f"))
		must(t, err)
		if placed.Tries != 2 {
			t.Errorf("Send = %+v, want two tries", placed)
		}
	})

	t.Run("refused is one request", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t)
		for i, code := range []int{remoting.ResNoPermission, remoting.ResMessageIllegal, remoting.ResTopicNotExist} {
			w.fail(code, 1)
			placed, err := s.Send(t.Context(), w.message("e"))
			wantError(t, err, txmq.ErrRefused)
			if errors.Is(err, txmq.ErrMayBeStored) || placed.Tries != 1 || w.requests() != i+1 {
				t.Errorf("Send = %+v, %v after %d requests, want one each", placed, err, w.requests())
			}
		}
		if all := slices.Concat(w.stored(t)...); len(all) != 0 {
			t.Errorf("%d messages are stored, want none", len(all))
		}
	})

	t.Run("no answer at all", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t, func(c *SenderConfig) { c.Retries = 2 })
		lost := w.loseReplies(0)
		placed, err := s.Send(t.Context(), w.message("e"))
		wantError(t, err, txmq.ErrBrokerUnreachable)
		wantError(t, err, txmq.ErrMayBeStored)
		must(t, lost.Wait(t.Context(), 3))
		lost.Remove()
		if placed.Tries != 3 || w.requests() != 3 || len(w.copies(t, 3)) != 3 {
			t.Errorf("Send = %+v with %d requests, want 3 of them stored", placed, w.requests())
		}
		_, err = s.Send(t.Context(), w.message("e")) // as the error says
		must(t, err)
	})

	t.Run("the caller leaves while the broker is silent", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t, func(c *SenderConfig) { c.SendTimeout = 5 * time.Second })
		_, err := s.Send(t.Context(), w.message("first")) // the other senders of the client are not disturbed
		must(t, err)
		lost := w.loseReplies(1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = lost.Wait(ctx, 1)
			cancel()
		})
		began := time.Now()
		placed, err := s.Send(ctx, w.message("e"))
		wg.Wait()
		wantError(t, err, context.Canceled)
		wantError(t, err, txmq.ErrMayBeStored)
		if took := time.Since(began); took > 4*time.Second || placed.Tries != 1 {
			t.Errorf("Send = %+v after %v, want one try that is left at once", placed, took)
		}
		conns := w.proxy.Conns()[w.addr]
		_, err = s.Send(t.Context(), w.message("next"))
		must(t, err)
		if now := w.proxy.Conns()[w.addr]; now != conns {
			t.Errorf("connections = %d, want %d as before", now, conns)
		}
		if got := len(w.copies(t, 3)); got != 3 {
			t.Errorf("%d messages are stored, want 3", got)
		}
	})

	t.Run("a done context sends nothing", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Send(ctx, w.message("e"))
		wantError(t, err, context.Canceled)
		_, err = s.Send(t.Context(), w.message("f")) // on the same connection, so nothing is on its way any more
		must(t, err)
		if w.requests() != 1 {
			t.Errorf("%d requests, want the second message's only", w.requests())
		}
	})

	t.Run("a delay level delays", func(t *testing.T) {
		t.Parallel()
		w := onWire(t, testenv.DefaultVersion, 1)
		s := w.sender(t)
		m := w.message("later")
		m.DelayLevel = 1
		began := time.Now()
		_, err := s.Send(t.Context(), m)
		must(t, err)
		_, err = s.Send(t.Context(), w.message("now"))
		must(t, err)
		var got []string
		for _, c := range w.copies(t, 2) {
			got = append(got, c.GetProperty(txmq.PropertyEventID))
		}
		if !slices.Equal(got, []string{"now", "later"}) || time.Since(began) < 900*time.Millisecond {
			t.Errorf("messages came as %v after %v, want the delayed one a second later", got, time.Since(began))
		}
	})
}

func TestSenderKeepsOrder(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run("by key, through retries, on "+version, func(t *testing.T) {
			t.Parallel()
			const each = 50
			w := onWire(t, version, 8)
			s := w.sender(t)
			// Every tenth request meets a busy broker, and some answers are lost.
			n := 0
			var mu sync.Mutex
			w.proxy.Inject(wireproxy.Fault{
				Code: remoting.SendMessage, Action: wireproxy.Answer, Response: remoting.ResSystemBusy, Remark: "for a test",
				Match: func(remoting.Frame) bool {
					mu.Lock()
					defer mu.Unlock()
					n++
					return n%10 == 0
				},
			})
			w.proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.LoseReply, Skip: 20, Count: 2})
			keys := []string{"order-1", "order-2", "order-3"}
			var wg sync.WaitGroup
			var retried int
			for _, key := range keys {
				wg.Go(func() {
					for i := range each {
						m := w.message(fmt.Sprintf("%s:%02d", key, i))
						m.ShardingKey = key
						placed, err := s.Send(t.Context(), m)
						if err != nil {
							t.Errorf("Send = %v", err)
							return
						}
						mu.Lock()
						retried += placed.Tries - 1
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if retried < 10 {
				t.Errorf("%d retries, want many", retried)
			}
			all := w.copies(t, each*len(keys))
			for _, key := range keys {
				wantInOrder(t, all, key, each)
			}
		})
	}
}

// wantInOrder wants all copies of a key's events in one queue, the first copy of
// each after the first copy of the one before.
func wantInOrder(t *testing.T, all []*primitive.MessageExt, key string, count int) {
	t.Helper()
	var first []string
	queues := map[int]bool{}
	for _, c := range all { // in the order of each queue
		if c.GetProperty(txmq.PropertyShardingKey) != key {
			continue
		}
		queues[c.Queue.QueueId] = true
		if event := c.GetProperty(txmq.PropertyEventID); !slices.Contains(first, event) {
			first = append(first, event)
		}
	}
	if len(queues) != 1 || len(first) != count || !slices.IsSorted(first) {
		t.Errorf("key %s lies in queues %v as %v, want one queue and %d events in order", key, queues, first, count)
	}
}

func TestSenderLife(t *testing.T) {
	t.Parallel()
	w := onWire(t, testenv.DefaultVersion, 1)
	s, err := NewSender(SenderConfig{
		Broker: txmq.Broker{NameServers: []string{w.proxy.NameServer()}}, Group: "s-" + w.topic, Observe: w.events.observe,
		Retries: 16, Backoff: Backoff{Min: time.Minute, Max: time.Minute}, Drain: 100 * time.Millisecond,
	})
	must(t, err)
	_, err = s.Send(t.Context(), w.message("e"))
	wantError(t, err, txmq.ErrNotStarted)
	must(t, s.Start(t.Context()))
	if err := s.Start(t.Context()); err == nil {
		t.Error("second Start = nil, want an error")
	}
	w.fail(remoting.ResSystemBusy, 1)
	sent := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.Send(t.Context(), w.message("e"))
		sent <- err
	})
	must(t, w.proxy.WaitCount(t.Context(), remoting.SendMessage, 1))
	if err := s.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v, want it to say that a send was left", err)
	}
	err = <-sent
	wantError(t, err, txmq.ErrClosed)
	if errors.Is(err, txmq.ErrMayBeStored) {
		t.Errorf("Send = %v, want it known that it is not stored", err)
	}
	wg.Wait()
	_, err = s.Send(t.Context(), w.message("e"))
	wantError(t, err, txmq.ErrClosed)
	if err := s.Start(t.Context()); !errors.Is(err, txmq.ErrClosed) {
		t.Errorf("Start = %v, want ErrClosed", err)
	}
	if w.requests() != 1 {
		t.Errorf("%d requests, want 1", w.requests())
	}
}
