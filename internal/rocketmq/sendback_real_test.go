package rocketmq

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
)

var versions = []string{"4.9.7", "5.3.3", "5.5.0"}

// onVersions runs a test on each broker version, with a topic of its own.
func onVersions(t *testing.T, name string, test func(*testing.T, bundle)) {
	t.Helper()
	for _, v := range versions {
		t.Run(name+" on "+v, func(t *testing.T) {
			t.Parallel()
			test(t, newBundle(t, testenv.NameServerVersion(t, v), testenv.BrokerVersion(t, v)))
		})
	}
}

// copyOf is what a group is to be delivered.
type copyOf struct {
	topic, event, body, tags, keys, sharding, mine, born string
	times                                                int32
}

func copied(m *primitive.MessageExt) copyOf {
	return copyOf{
		m.Topic, event(m), string(m.Body), m.GetTags(), m.GetKeys(), m.GetShardingKey(),
		m.GetProperty("mine"), m.GetProperty(txmq.PropertyBorn), m.ReconsumeTimes,
	}
}

// full is a message with all that a copy must keep.
func (b bundle) full(t *testing.T) (Sent, copyOf) {
	t.Helper()
	m := txmq.Message{
		Topic: b.topic, EventID: "event-" + b.topic, Body: []byte(strings.Repeat("body ", 3000)), Tag: "paid",
		Keys: []string{"o1", "o2"}, ShardingKey: "k", Properties: map[string]string{"mine": "ü"},
	}
	sent, err := b.sender(t).Send(t.Context(), m, map[string]string{txmq.PropertyBorn: "1700000000000"})
	if err != nil {
		t.Fatal(err)
	}
	return sent, copyOf{m.Topic, m.EventID, string(m.Body), m.Tag, "o1 o2", "k", "ü", "1700000000000", 0}
}

// deliveries consumes as a group of that name and acknowledges all.
func (b bundle) deliveries(t *testing.T, group string) <-chan *primitive.MessageExt {
	t.Helper()
	seen := make(chan *primitive.MessageExt, 100)
	b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
		seen <- m
		return Result{Kind: Ack}
	}, func(c *PushConfig) { c.Group = group })
	return seen
}

// inOrder is deliveries for a group that consumes in order.
func (b bundle) inOrder(t *testing.T, group string) <-chan *primitive.MessageExt {
	t.Helper()
	seen := make(chan *primitive.MessageExt, 100)
	b.makeTopic(t, retryPrefix+group) // else the client finds it up to 40 s later
	c, err := consumer.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{b.ns})),
		consumer.WithGroupName(group), consumer.WithInstance(instanceName(group)), consumer.WithConsumerOrder(true),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Subscribe(b.topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			seen <- m
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown() })
	return seen
}

// next waits for a delivery.
func next(t *testing.T, from <-chan *primitive.MessageExt, want copyOf) *primitive.MessageExt {
	t.Helper()
	select {
	case m := <-from:
		if got := copied(m); got != want {
			t.Errorf("delivered %.300v, want %.300v", got, want)
		}
		return m
	case <-time.After(50 * time.Second): // a client may find a retry topic late
		t.Fatalf("not delivered: %.300v", want)
		panic("not reached")
	}
}

// stored is how many messages the topic ever got, 0 if there is none.
func (b bundle) stored(t *testing.T, topic string) int {
	t.Helper()
	if _, err := brokersOf(t.Context(), at(b.ns), topic); errors.Is(err, txmq.ErrRefused) {
		return 0
	}
	res, err := remoting.Call(t.Context(), b.broker, remoting.Request(remoting.GetMaxOffset,
		map[string]string{"topic": topic, "queueId": "0"}, nil))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(res.ExtFields["offset"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nothingFor wants no copy in what another group can get: the topic itself,
// which has one message, and its own retry topic.
func (b bundle) nothingFor(t *testing.T, group string) {
	t.Helper()
	if n := b.stored(t, b.topic); n != 1 {
		t.Errorf("topic has %d messages, want the one that was sent", n)
	}
	if n := b.stored(t, retryPrefix+group); n != 0 {
		t.Errorf("retry topic of %s has %d messages, want none", group, n)
	}
}

func (b bundle) sendBack(t *testing.T, req SendBackRequest) {
	t.Helper()
	if err := SendBack(t.Context(), at(b.ns), req); err != nil {
		t.Fatalf("SendBack = %v", err)
	}
}

func TestSendBack(t *testing.T) {
	t.Parallel()
	onVersions(t, "one group gets the copy", func(t *testing.T, b bundle) {
		other := "other-" + b.group
		mine, others := b.deliveries(t, b.group), b.deliveries(t, other)
		sent, want := b.full(t)
		req := SendBackRequest{
			Group: b.group, Topic: b.topic, OffsetMsgID: sent.OffsetMsgID, BrokerName: sent.BrokerName, MsgID: sent.MsgID,
		}
		next(t, mine, want)
		next(t, others, want)
		b.sendBack(t, req)
		want.times = 1
		first := next(t, mine, want)
		// Its copy serves as well, and so does an address that is no longer true.
		req.OffsetMsgID = first.OffsetMsgId[:7] + "9" + first.OffsetMsgId[8:]
		b.sendBack(t, req)
		want.times = 2
		next(t, mine, want)
		b.nothingFor(t, other)
	})
	onVersions(t, "a group that consumes in order", func(t *testing.T, b bundle) {
		other := "other-" + b.group
		mine, others := b.inOrder(t, b.group), b.deliveries(t, other)
		sent, want := b.full(t)
		next(t, mine, want)
		next(t, others, want)
		b.sendBack(t, SendBackRequest{Group: b.group, Topic: b.topic, OffsetMsgID: sent.OffsetMsgID})
		want.times = 1
		next(t, mine, want)
		b.nothingFor(t, other)
	})
	onVersions(t, "before the group's first start", func(t *testing.T, b bundle) {
		sent, want := b.full(t)
		for _, group := range []string{b.group, "ordered-" + b.group} {
			b.sendBack(t, SendBackRequest{Group: group, Topic: b.topic, OffsetMsgID: sent.OffsetMsgID, DelayLevel: 2})
		}
		want.times = 1
		for _, from := range []<-chan *primitive.MessageExt{b.deliveries(t, b.group), b.inOrder(t, "ordered-"+b.group)} {
			got := []*primitive.MessageExt{receive(t, from, "first"), receive(t, from, "second")}
			times := map[int32]bool{}
			for _, m := range got {
				times[m.ReconsumeTimes] = true
				c := copied(m)
				if c.times = 1; c != want {
					t.Errorf("delivered %.300v, want %.300v", c, want)
				}
			}
			if !maps.Equal(times, map[int32]bool{0: true, 1: true}) {
				t.Errorf("delivery counts %v, want the message and its copy", times)
			}
		}
		b.nothingFor(t, "other-"+b.group)
	})
	onVersions(t, "gone, and not", func(t *testing.T, b bundle) {
		sent, _ := b.full(t)
		good := SendBackRequest{
			Group: b.group, Topic: b.topic, OffsetMsgID: sent.OffsetMsgID, BrokerName: sent.BrokerName, MsgID: sent.MsgID,
		}
		here, err := parsePlace(sent.OffsetMsgID)
		if err != nil {
			t.Fatal(err)
		}
		moved := func(by int64) func(*SendBackRequest) {
			return func(r *SendBackRequest) {
				r.OffsetMsgID = sent.OffsetMsgID[:16] + strings.ToUpper(leftPad(strconv.FormatInt(here.offset+by, 16)))
			}
		}
		for name, c := range map[string]struct {
			change func(*SendBackRequest)
			want   error
		}{
			"far beyond the log":          {moved(1 << 40), ErrGone},
			"one byte inside the message": {moved(1), ErrGone},
			"at its magic number":         {moved(4), ErrGone},
			"at its body":                 {moved(90), ErrGone},
			"another message":             {func(r *SendBackRequest) { r.MsgID = "0" + r.MsgID[1:] + "0" }, ErrGone},
			"another topic":               {func(r *SendBackRequest) { r.Topic += "x" }, ErrGone},
			"another broker":              {func(r *SendBackRequest) { r.BrokerName = "broker-z" }, txmq.ErrBrokerUnreachable},
			"an address of nobody": {func(r *SendBackRequest) {
				r.BrokerName, r.OffsetMsgID = "", "0A"+r.OffsetMsgID[2:]
			}, txmq.ErrBrokerUnreachable},
		} {
			req := good
			c.change(&req)
			if err := SendBack(t.Context(), at(b.ns), req); !errors.Is(err, c.want) {
				t.Errorf("%s: SendBack = %v, want %v", name, err, c.want)
			}
		}
		if err := SendBack(t.Context(), at("127.0.0.1:1"), good); !errors.Is(err, txmq.ErrBrokerUnreachable) {
			t.Errorf("no name server: SendBack = %v, want %v", err, txmq.ErrBrokerUnreachable)
		}
		b.nothingFor(t, b.group)
	})
}

func leftPad(s string) string { return strings.Repeat("0", 16-len(s)) + s }

func TestRepublish(t *testing.T) {
	t.Parallel()
	onVersions(t, "one group gets what the broker has no more", func(t *testing.T, b bundle) {
		other := "other-" + b.group
		mine, others := b.deliveries(t, b.group), b.deliveries(t, other)
		_, want := b.full(t)
		m := next(t, mine, want)
		next(t, others, want)
		// As a row keeps it: with all that the broker had added.
		props := m.GetProperties()
		s := b.sender(t)
		sent, err := s.Republish(t.Context(), RepublishRequest{
			Group: b.group, Topic: b.topic, Body: m.Body, Properties: props, Born: time.Now(),
		})
		if err != nil {
			t.Fatalf("Republish = %v", err)
		}
		want.times = 1
		got := next(t, mine, want)
		if got.GetProperty(txmq.PropertyRedrive) != b.group || got.MsgId != m.MsgId {
			t.Errorf("copy %s with properties %v, want ID %s and a mark of re-drive", got.MsgId, got.GetProperties(), m.MsgId)
		}
		// What lies in the holding topic now can be sent back as any other.
		b.sendBack(t, SendBackRequest{
			Group: b.group, Topic: b.topic, OffsetMsgID: sent.OffsetMsgID, BrokerName: sent.BrokerName, MsgID: m.MsgId,
		})
		next(t, mine, want)
		b.nothingFor(t, other)
	})
	onVersions(t, "a foreign message, before the group's first start", func(t *testing.T, b bundle) {
		born := time.UnixMilli(1600000000000)
		_, err := b.sender(t).Republish(t.Context(), RepublishRequest{
			Group: b.group, Topic: b.topic, Body: []byte("b"), Born: born,
			Properties: map[string]string{"KEYS": "order 7", "TAGS": " odd", "mine": "a\nb", "TRAN_MSG": "true", "BUYER_ID": "x"},
		})
		if err != nil {
			t.Fatalf("Republish = %v", err)
		}
		m := next(t, b.deliveries(t, b.group), copyOf{b.topic, "", "b", " odd", "order 7", "", "a\nb", "1600000000000", 1})
		if p := m.GetProperties(); p["TRAN_MSG"] != "" || p["BUYER_ID"] != "" {
			t.Errorf("properties of the copy = %v, want none that make it a half", p)
		}
		if n := b.stored(t, b.topic); n != 0 {
			t.Errorf("topic has %d messages, want none", n)
		}
	})
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	onVersions(t, "a live group", func(t *testing.T, b bundle) {
		if live, err := Subscriptions(t.Context(), at(b.ns), b.group); err != nil || len(live) != 0 {
			t.Fatalf("Subscriptions = %+v, %v; want none", live, err)
		}
		b.consume(t, func(context.Context, *primitive.MessageExt) Result { return Result{Kind: Ack} },
			func(c *PushConfig) { c.Subscriptions[0].Tags = "b||a" })
		var g LiveGroup
		eventually(t, "group is live", func() bool {
			live, err := Subscriptions(t.Context(), at(b.ns), b.group)
			if err != nil {
				t.Fatal(err)
			}
			if len(live) == 1 {
				g = live[0]
			}
			return len(live) == 1
		})
		f := g.Topics[b.topic]
		if g.BrokerName != "broker-a" || g.Pull || g.Broadcasting || len(g.Topics) != 1 ||
			f.Type != "TAG" || f.Expression != "b||a" || strings.Join(f.Tags, " ") != "a b" {
			t.Errorf("Subscriptions = %+v, want push, clustering, tags a and b of %s", g, b.topic)
		}
		if len(g.Clients) != 1 || !strings.Contains(g.Clients[0].ID, b.group) || g.Clients[0].Language != "GO" || g.Clients[0].Addr == "" {
			t.Errorf("clients = %+v, want one in Go", g.Clients)
		}
	})
}
