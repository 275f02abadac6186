package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	rawproducer "github.com/apache/rocketmq-client-go/v2/producer"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/bench/baseline"
	"github.com/txmq/txmq/consumer"
)

const (
	workers = 16
	batch   = 50 // messages that go to the broker in one request
)

// atomicMode and trackedMode compare a consumer's two modes with the raw push
// consumer, whose transaction has the same two statements and no deduplication.
func atomicMode(ctx context.Context, w *world, o options) (*trio, error) {
	return consuming(ctx, w, o, consumer.Atomic)
}

func trackedMode(ctx context.Context, w *world, o options) (*trio, error) {
	return consuming(ctx, w, o, consumer.Tracked)
}

func consuming(ctx context.Context, w *world, o options, mode func(consumer.Func) consumer.Work) (*trio, error) {
	feed, err := w.feed(ctx)
	if err != nil {
		return nil, err
	}
	t := &trio{}
	for i, s := range []struct {
		name  string
		side  *side
		start func(context.Context, *database, *stream) error
	}{
		{"txmq", &t.ours, func(ctx context.Context, db *database, s *stream) error { return w.consumer(ctx, db, s, mode) }},
		{"peer", &t.peer, w.receiver},
		{"control", &t.control, w.receiver},
	} {
		db, err := w.database(ctx, s.name)
		if err != nil {
			return nil, err
		}
		st := &stream{gate: newGate(), finished: make(chan struct{}, 1), log: w.log}
		if st.topic, err = w.topic(ctx, s.name); err != nil {
			return nil, err
		}
		if err := s.start(ctx, db, st); err != nil {
			return nil, err
		}
		t.counters[i] = db.counter
		*s.side = side{s.name, func(ctx context.Context, m *meter) error { return st.round(ctx, m, feed, o.messages) }}
	}
	return t, nil
}

// stream is one side's consumer at work.
type stream struct {
	topic    string
	gate     *gate
	left     atomic.Int64
	finished chan struct{} // holds a token when left has come to 0
	log      *slog.Logger
}

// round fills the topic while the gate is shut, waits until all workers stand at
// it, and measures from its opening to the last message's end. By then the
// client has pulled what the workers have not begun.
func (s *stream) round(ctx context.Context, m *meter, feed func(context.Context, string, int) error, messages int) error {
	s.gate.shut()
	s.left.Store(int64(messages))
	if err := feed(ctx, s.topic, messages); err != nil {
		return err
	}
	if err := s.gate.full(ctx); err != nil {
		return err
	}
	m.start()
	s.gate.open()
	select {
	case <-s.finished:
	case <-ctx.Done():
		return fmt.Errorf("%w: %d of %d messages have not ended", context.Cause(ctx), s.left.Load(), messages)
	}
	m.stop(messages)
	return nil
}

// ended is called for each delivery's end. One that failed comes again, and the
// round waits for it.
func (s *stream) ended(err error) {
	if err != nil {
		s.log.Warn("delivery failed", slog.String("topic", s.topic), slog.Any("error", err))
		return
	}
	if s.left.Add(-1) == 0 {
		s.finished <- struct{}{}
	}
}

// consumer starts ours. Its gate is in EventID, which is asked before anything
// of a delivery begins.
func (w *world) consumer(ctx context.Context, db *database, s *stream, mode func(consumer.Func) consumer.Work) error {
	store, err := db.store(ctx)
	if err != nil {
		return err
	}
	c, err := consumer.New(consumer.Config{
		Store: store, Broker: txmq.Broker{NameServers: []string{w.nameServer}}, Group: w.run + "_" + "ours", Workers: workers,
		Observe: func(_ context.Context, e txmq.Event) {
			if d, ok := e.(txmq.Delivered); ok {
				s.ended(outcomeError(d))
			}
		},
		Handlers: []consumer.Handler{{
			Topic: s.topic,
			EventID: func(m *primitive.MessageExt) string {
				s.gate.pass()
				return m.GetProperty(txmq.PropertyEventID)
			},
			Do: mode(func(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error { return book(tx, d.Body) }),
		}},
	})
	if err != nil {
		return err
	}
	if err := w.consume(ctx, c); err != nil {
		return err
	}
	w.atEnd(func() error { s.gate.open(); return nil })
	return nil
}

var errEnded = errors.New("the consumer has ended")

// consume runs c until the end, and returns when it is ready.
func (w *world) consume(ctx context.Context, c *consumer.Consumer) error {
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() { // the end waits for it
		err := c.Run(ctx)
		stop(errEnded)
		ended <- err
	}()
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := c.Ready(ready); err != nil {
		stop(nil)
		return errors.Join(err, <-ended)
	}
	w.atEnd(func() error { stop(nil); return <-ended })
	return nil
}

func outcomeError(d txmq.Delivered) error {
	if d.Outcome == txmq.OutcomeDone && d.Err == nil {
		return nil
	}
	return fmt.Errorf("delivery of %s ended as %q: %w", d.EventID, d.Outcome, d.Err)
}

func (w *world) receiver(_ context.Context, db *database, s *stream) error {
	r, err := baseline.StartReceiver(baseline.Options{
		DB: db.gorm, NameServer: w.nameServer, Group: s.topic, Topic: s.topic, Workers: workers,
		Handle: func(_ context.Context, tx *gorm.DB, m *primitive.MessageExt) error { return book(tx, m.Body) },
		Before: s.gate.pass, After: s.ended,
	})
	if err == nil {
		w.atEnd(func() error {
			s.gate.open()
			return r.Close()
		})
	}
	return err
}

// feed returns what fills a topic with new messages, as txmq's own producer would
// name them.
func (w *world) feed(context.Context) (func(ctx context.Context, topic string, n int) error, error) {
	p, err := rawproducer.NewDefaultProducer(
		rawproducer.WithNsResolver(primitive.NewPassthroughResolver([]string{w.nameServer})),
		rawproducer.WithGroupName(w.run+"_feed"), rawproducer.WithInstanceName(w.run+"_feed"))
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	w.atEnd(p.Shutdown)
	var number atomic.Int64
	return func(ctx context.Context, topic string, n int) error {
		for n > 0 {
			list := make([]*primitive.Message, 0, batch)
			for ; n > 0 && len(list) < batch; n-- {
				k := number.Add(1)
				pm := newPayment(k, fmt.Sprintf("%s:%d", w.run, k))
				m := primitive.NewMessage(topic, pm.body()).WithKeys([]string{pm.Ref})
				m.WithProperty(txmq.PropertyEventID, pm.Ref)
				list = append(list, m)
			}
			if _, err := p.SendSync(ctx, list...); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
