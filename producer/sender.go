package producer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

// plain is the broker's side of a Sender: *rocketmq.Sender, or a simulation of
// it. Its methods, and those of tries, have the promises that are written there.
type plain interface {
	Start(ctx context.Context) error
	Begin(m txmq.Message, props map[string]string) (tries, error)
	Stopped() <-chan struct{}
	Close(ctx context.Context) error
}

type tries interface {
	Try(ctx context.Context) (rocketmq.Sent, error)
	End()
}

// onRocketMQ makes a plain of a *rocketmq.Sender.
type onRocketMQ struct{ *rocketmq.Sender }

// Begin gives an interface.
func (s onRocketMQ) Begin(m txmq.Message, props map[string]string) (tries, error) {
	g, err := s.Sender.Begin(m, props)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Sender sends messages that belong to no transaction, and waits for the
// broker's word for each. It needs no database. Safe for concurrent use.
type Sender struct {
	cfg   SenderConfig
	plain plain
	now   func() time.Time
}

// NewSender checks the configuration, all bad fields at once, each a
// *txmq.FieldError, and starts nothing.
func NewSender(cfg SenderConfig) (*Sender, error) {
	return newSender(cfg, func(c rocketmq.SenderConfig) (plain, error) {
		s, err := rocketmq.NewSender(c)
		return onRocketMQ{s}, err
	})
}

func newSender(cfg SenderConfig, connect func(rocketmq.SenderConfig) (plain, error)) (*Sender, error) {
	cfg = cfg.withDefaults()
	p, err := connect(cfg.rocketmq())
	if err := joinFields(senderFields, cfg.validate(), err); err != nil {
		return nil, err
	}
	return &Sender{cfg: cfg, plain: p, now: time.Now}, nil
}

// Start connects. With the name servers away it is an error that Is
// txmq.ErrBrokerUnreachable and names them, after at most 3 s each; Start may
// then be called again. After success it is an error.
func (s *Sender) Start(ctx context.Context) error {
	if err := s.plain.Start(ctx); err != nil {
		return &txmq.OpError{Op: "start sender", Err: err}
	}
	return nil
}

// Close refuses new sends, waits for those in flight with their retries, up to
// Config.Drain and ctx, and disconnects; its error says that something was left
// running. It may be called more than once.
func (s *Sender) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Drain)
	defer cancel()
	if err := s.plain.Close(ctx); err != nil {
		return &txmq.OpError{Op: "close sender", Err: err}
	}
	return nil
}

// Placed says where a message lies, as the broker confirmed it. Beside an error
// only EventID and Tries are set.
type Placed struct {
	// EventID is the message's, or the one that was made for it.
	EventID string

	// MsgID is the client's name of the message; it may repeat. Each try has
	// another.
	MsgID string

	BrokerName  string
	QueueID     int
	QueueOffset int64 // with a delay level, of the broker's schedule

	// Tries is how many requests were made. With more than one, the message may
	// be stored more than once, each time with the same event ID.
	Tries int
}

// Send sends m and returns nil once the broker has stored it durably. It does
// so whatever becomes of a transaction of yours; for both or neither there is
// SendInTransaction.
//
// It tries 1 + Retries times, with Backoff in between, each try bounded by
// SendTimeout and 5 s for the route of a topic that was not sent to before. What
// the broker would refuse again is not tried again. All tries carry one event
// ID and one time of birth; a try whose answer was lost may be stored as well,
// and consumers tell it by the event ID.
//
// With a ShardingKey, all messages of that key go to one queue, by the key's
// hash over the topic's queues, and so do all tries of one: while that queue's
// broker is away, Send fails, and never takes another. One Send after the other
// keeps their order; concurrent ones have none. After an error that Is
// txmq.ErrMayBeStored the message may also come after the next one of its key. A
// delay level delays also past later messages of the key. When queues are added
// to the topic, or taken from a broker, most keys move to other queues: let
// consumers come to the end first. A broker that leaves keeps its place in this
// Sender's hash; a Sender that is made while it is away does not know of it,
// unless the topic is one that the name server keeps an order for (mqadmin
// updateTopic -o true).
//
// With ctx done nothing is sent; done later, Send returns at once with what is
// known. Every error is a *txmq.OpError. One that Is txmq.ErrMayBeStored means
// that the message may be delivered, now or later: it is safe to send it again
// with the same event ID, the one in Placed. All others mean that it is not
// stored: txmq.ErrRefused (no topic, no permission, too large),
// txmq.ErrBrokerUnreachable (busy or away at each try), ctx's own,
// txmq.ErrClosed, txmq.ErrNotStarted, or *txmq.FieldErrors of m.
// txmq.ErrNotDurable comes with txmq.ErrMayBeStored.
func (s *Sender) Send(ctx context.Context, m txmq.Message) (Placed, error) {
	c := &plainSend{s: s, m: m, began: s.now()}
	c.err = c.run(ctx)
	s.cfg.Observe.Emit(ctx, txmq.Sent{
		Topic: m.Topic, EventID: c.m.EventID, MsgID: c.at.MsgID, Tries: c.tries, Took: s.now().Sub(c.began), Err: c.err,
	})
	placed := Placed{
		EventID: c.m.EventID, MsgID: c.at.MsgID, BrokerName: c.at.BrokerName,
		QueueID: c.at.QueueID, QueueOffset: c.at.QueueOffset, Tries: c.tries,
	}
	if c.err != nil {
		return placed, &txmq.OpError{Op: "send", EventID: c.m.EventID, Err: c.err}
	}
	return placed, nil
}

// plainSend is one call of Send.
type plainSend struct {
	s     *Sender
	m     txmq.Message // with its event ID
	began time.Time

	tries int
	maybe bool // a try may be stored
	at    rocketmq.Sent
	err   error
}

func (c *plainSend) run(ctx context.Context) error {
	if err := rocketmq.CheckMessage(c.m, false); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.m.EventID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		c.m.EventID = id.String()
	}
	under, err := c.s.plain.Begin(c.m, map[string]string{
		txmq.PropertyBorn: strconv.FormatInt(c.began.UnixMilli(), 10),
	})
	if err != nil {
		return err
	}
	defer under.End()
	return c.known(c.try(ctx, under))
}

// try sends until the broker confirms, refuses, or the retries are used up.
func (c *plainSend) try(ctx context.Context, under tries) error {
	for {
		c.tries++
		at, err := under.Try(ctx)
		if err == nil {
			c.at = at
			return nil
		}
		c.maybe = c.maybe || !rocketmq.Unsent(err)
		if c.tries > c.s.cfg.Retries || !passing(err) {
			return err
		}
		if stop := c.pause(ctx); stop != nil {
			return fmt.Errorf("%w: %w", stop, err)
		}
	}
}

// passing says that the same request may be accepted the next time.
func passing(err error) bool {
	return errors.Is(err, txmq.ErrBrokerUnreachable) || errors.Is(err, txmq.ErrNotDurable)
}

// pause waits before the next try, unless there is to be none.
func (c *plainSend) pause(ctx context.Context) error {
	t := time.NewTimer(c.s.cfg.Backoff.schedule().After(c.tries))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.s.plain.Stopped():
		return txmq.ErrClosed
	}
}

// known says beside err what is known of the message.
func (c *plainSend) known(err error) error {
	switch {
	case err == nil:
		return nil
	case c.maybe:
		return fmt.Errorf("%w (tries: %d): %w", txmq.ErrMayBeStored, c.tries, err)
	default:
		return fmt.Errorf("message is not stored (tries: %d): %w", c.tries, err)
	}
}
