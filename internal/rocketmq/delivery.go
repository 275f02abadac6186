package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/hooks"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// propertyFormerTopic keeps a message's topic while the client must take it for
// another's. It never leaves the process.
const propertyFormerTopic = "TXMQ_FORMER_TOPIC"

// consume is the client's callback. It returns no error, ever, because the
// client takes an error beside a zero result for success (Q24), and sets the
// delay before anything else.
func (c *PushConsumer) consume(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	level := Level(0)
	cc, ok := primitive.GetConcurrentlyCtx(ctx)
	if ok {
		cc.DelayLevelWhenNextConsume = level
	}
	if len(msgs) != 1 || !ok { // the batch size is 1
		c.log.LogAttrs(ctx, slog.LevelError, "delivery is not one message", slog.Int("messages", len(msgs)))
		return consumer.ConsumeRetryLater, nil
	}
	m := msgs[0]
	if topic := m.RemoveProperty(propertyFormerTopic); topic != "" {
		m.WithProperty(primitive.PropertyRetryTopic, topic)
		m.Topic = topic
	}
	// A message that the broker hands over directly, on an operator's request,
	// is in no queue of the client's, and does not say which broker it is from.
	direct := m.Queue == nil || m.Queue.BrokerName == ""
	if direct {
		q := cc.MQ
		m.Queue = &q
	} else {
		c.marks.begin(m)
	}
	r, ran := c.deliver(m)
	if ran {
		defer c.life.end() // after the mark, which Close reads when all have landed
	}
	if !direct {
		defer c.marks.end(m)
	}
	switch r.Kind {
	case Ack:
		return consumer.ConsumeSuccess, nil
	case DeadLetter:
		level = deadLetterLevel
	default:
		level = Level(r.Delay)
	}
	cc.DelayLevelWhenNextConsume = level
	return consumer.ConsumeRetryLater, nil
}

// deliver calls Handle when a worker is free and the gate is open. If it ran,
// the delivery is in flight until the caller ends it. A late
// delivery, one that Close has overtaken, waits until the client has dropped
// its queue and is then answered Retry without being run: answered earlier, the
// client would send each one back.
func (c *PushConsumer) deliver(m *primitive.MessageExt) (r Result, ran bool) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.gate.ended:
		return Result{}, false
	}
	if !c.gate.pass() {
		return Result{}, false
	}
	if c.life.join() != nil {
		<-c.gate.ended
		return Result{}, false
	}
	// Not on the client's goroutine, which runtime.Goexit would end, and the
	// queue's offset with it (Q29).
	if !c.crew.Do(func() { r = c.guarded(m) }) {
		c.log.LogAttrs(c.base, slog.LevelError, "handler ended its goroutine", slog.String("msg_id", m.MsgId))
	}
	return r, true
}

func (c *PushConsumer) guarded(m *primitive.MessageExt) (r Result) {
	defer func() {
		if cause := recover(); cause != nil {
			r = Result{}
			c.log.LogAttrs(c.base, slog.LevelError, "handler panicked",
				slog.String("msg_id", m.MsgId), slog.String("topic", m.Topic),
				slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
		}
	}()
	return c.cfg.Handle(c.base, m)
}

// pulled sees what the client has pulled, before it caches it.
func (c *PushConsumer) pulled(in *hooks.FilterMessageContext) ([]*primitive.MessageExt, error) {
	if c.life.now() == stateClosed {
		return nil, nil // the next owner of the queue pulls it again
	}
	for _, m := range in.Msg {
		c.adopt(m)
	}
	return in.Msg, nil
}

// adopt makes a retry deliverable whose topic this group has subscribed to no
// more. The client has no callback for such a one and sends it back in circles,
// without a word to us.
func (c *PushConsumer) adopt(m *primitive.MessageExt) {
	topic := m.GetProperty(primitive.PropertyRetryTopic)
	if topic == "" || !strings.HasPrefix(m.Topic, retryPrefix) {
		return
	}
	for _, s := range c.cfg.Subscriptions {
		if s.Topic == topic {
			return
		}
	}
	m.WithProperty(propertyFormerTopic, topic)
	m.WithProperty(primitive.PropertyRetryTopic, c.cfg.Subscriptions[0].Topic)
}

// gate holds deliveries back while it is shut.
type gate struct {
	ended chan struct{} // closed by end

	mu  sync.Mutex
	way chan struct{} // closed while open
}

func newGate() *gate {
	g := &gate{ended: make(chan struct{}), way: make(chan struct{})}
	close(g.way)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
		g.way = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}

// end lets everybody go, once, with pass being false.
func (g *gate) end() { close(g.ended) }

// pass waits until the gate is open; false when it has ended.
func (g *gate) pass() bool {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	select {
	case <-way:
		return true
	case <-g.ended:
		return false
	}
}

// marks know, for each queue, which deliveries are under way and which the
// client must have noted.
type marks struct {
	mu     sync.Mutex
	queues map[primitive.MessageQueue]*queueMark
}

type queueMark struct {
	open map[int64]struct{} // offsets with the handler
	next int64              // one more than the highest offset that is over
}

func newMarks() *marks { return &marks{queues: map[primitive.MessageQueue]*queueMark{}} }

func (m *marks) begin(msg *primitive.MessageExt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[*msg.Queue]
	if q == nil {
		q = &queueMark{open: map[int64]struct{}{}}
		m.queues[*msg.Queue] = q
	}
	q.open[msg.QueueOffset] = struct{}{}
}

func (m *marks) end(msg *primitive.MessageExt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.queues[*msg.Queue]; q != nil {
		delete(q.open, msg.QueueOffset)
		q.next = max(q.next, msg.QueueOffset+1)
	}
}

// reached says whether the client's offsets are past all deliveries that are
// over, as far as those that are not let them. A queue that the client has given
// away counts as reached.
func (m *marks) reached(offsets map[primitive.MessageQueue]int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue, q := range m.queues {
		want := q.next
		for offset := range q.open {
			want = min(want, offset)
		}
		if have, ok := offsets[queue]; ok && have < want {
			return false
		}
	}
	return true
}
