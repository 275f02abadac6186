package producer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

// broker simulates RocketMQ and its client as far as halves go. As the real one
// it shows a message for every Commit that it is told, whatever came before;
// so it forgives no wrong answer.
type broker struct {
	cfg rocketmq.TxConfig
	now func() time.Time

	mu     sync.Mutex
	halves []*halfMessage
	shown  []*halfMessage
	next   []faults // of the sends to come
	sends  int
	closed bool

	closeBy time.Time
}

// faults are what happens to one send.
type faults struct {
	refuse     error // nothing is stored
	notDurable bool
	copies     int    // more halves of the same attempt, by the client's retries
	lostAnswer bool   // stored, and the client knows nothing of it
	before     func() // between half and local transaction
	after      func() // between local transaction and end-transaction
	lostEnd    bool
}

type halfMessage struct {
	m     txmq.Message
	props map[string]string
	born  time.Time
	times int
	done  bool
}

func newBroker(cfg rocketmq.TxConfig, now func() time.Time) *broker {
	return &broker{cfg: cfg, now: now}
}

func (b *broker) Start(context.Context) error { return nil }

func (b *broker) Close(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeBy, _ = ctx.Deadline()
	b.closed = true
	return nil
}

// fail sets the faults of the sends to come, in their order.
func (b *broker) fail(f ...faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = append(b.next, f...)
}

func (b *broker) SendHalf(ctx context.Context, m txmq.Message, props map[string]string,
	local func(rocketmq.Half) txmq.Verdict,
) (rocketmq.HalfResult, error) {
	if err := ctx.Err(); err != nil {
		return rocketmq.HalfResult{}, err
	}
	stored, f, err := b.store(m, props)
	if err != nil {
		return rocketmq.HalfResult{}, err
	}
	half := rocketmq.Half{Topic: m.Topic, MsgID: fmt.Sprintf("%p", stored[0])}
	switch {
	case f.lostAnswer:
		return rocketmq.HalfResult{}, fmt.Errorf("%w: time-out", txmq.ErrBrokerUnreachable)
	case f.notDurable:
		b.end(stored[0], txmq.Rollback)
		return rocketmq.HalfResult{Half: half, Verdict: txmq.Rollback, Ended: true}, fmt.Errorf("%w: no replica is available", txmq.ErrHalfNotDurable)
	}
	if f.before != nil {
		f.before()
	}
	v := txmq.Unknown
	defer func() { // as the real one, when local does not return
		if f.after != nil {
			f.after()
		}
		if !f.lostEnd {
			b.end(stored[0], v)
		}
	}()
	v = local(half)
	return rocketmq.HalfResult{Half: half, Ran: true, Verdict: v, Ended: !f.lostEnd}, nil
}

func (b *broker) store(m txmq.Message, props map[string]string) ([]*halfMessage, faults, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sends++
	if b.closed {
		return nil, faults{}, txmq.ErrClosed
	}
	var f faults
	if len(b.next) > 0 {
		f, b.next = b.next[0], b.next[1:]
	}
	if f.refuse != nil {
		return nil, f, f.refuse
	}
	var stored []*halfMessage
	for range 1 + f.copies {
		stored = append(stored, &halfMessage{m: m, props: props, born: b.now()})
	}
	b.halves = append(b.halves, stored...)
	return stored, f, nil
}

func (b *broker) end(h *halfMessage, v txmq.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v == txmq.Unknown {
		return
	}
	h.done = true
	if v == txmq.Commit {
		b.shown = append(b.shown, h)
	}
}

// check sends one check-back for each open half, and gives the answers.
func (b *broker) check(ctx context.Context) []txmq.Verdict { return b.checkBy(ctx, b.cfg.Check) }

func (b *broker) checkBy(ctx context.Context, check func(context.Context, *primitive.MessageExt) txmq.Verdict) []txmq.Verdict {
	var answers []txmq.Verdict
	for _, h := range b.open() {
		v := check(ctx, h.asked())
		b.end(h, v)
		answers = append(answers, v)
	}
	return answers
}

func (b *broker) open() []*halfMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	var open []*halfMessage
	for _, h := range b.halves {
		if !h.done {
			open = append(open, h)
		}
	}
	return open
}

// asked is the half as the next check-back carries it.
func (h *halfMessage) asked() *primitive.MessageExt {
	h.times++
	m := &primitive.MessageExt{BornTimestamp: h.born.UnixMilli()}
	m.Topic, m.Body = h.m.Topic, h.m.Body
	m.WithProperty(txmq.PropertyEventID, h.m.EventID)
	for k, v := range h.props {
		m.WithProperty(k, v)
	}
	m.WithProperty(primitive.PropertyTranscationCheckTimes, strconv.Itoa(h.times))
	return m
}

// visible are the bodies of an event that consumers see, in order.
func (b *broker) visible(event string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bodies := []string{}
	for _, h := range b.shown {
		if h.m.EventID == event {
			bodies = append(bodies, string(h.m.Body))
		}
	}
	return bodies
}
