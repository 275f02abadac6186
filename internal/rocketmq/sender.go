package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/txmq/txmq"
)

// SenderConfig says how to send plain messages.
type SenderConfig struct {
	// Broker is where to send. Required.
	Broker txmq.Broker

	// Group is the producer group. Required.
	Group string

	// Retries is how often the client sends again what was not answered in
	// time. Each may store the message once more. 0: never.
	Retries int

	// SendTimeout is for one try. Default 3s.
	SendTimeout time.Duration

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

func (c SenderConfig) validate() error {
	errs := []error{CheckBroker(c.Broker, "SenderConfig.Broker"), CheckGroup(c.Group, "SenderConfig.Group")}
	if c.Retries < 0 || c.Retries > 16 {
		errs = append(errs, &txmq.FieldError{Field: "SenderConfig.Retries", Value: c.Retries, Want: "0 to 16"})
	}
	if c.SendTimeout < 0 {
		errs = append(errs, &txmq.FieldError{Field: "SenderConfig.SendTimeout", Value: c.SendTimeout, Want: "more than 0"})
	}
	return errors.Join(errs...)
}

// Sent says where a message lies.
type Sent struct {
	MsgID, OffsetMsgID, BrokerName string
	QueueID                        int
	QueueOffset                    int64
}

// Sender sends plain messages. It is safe for concurrent use.
type Sender struct {
	cfg    SenderConfig
	log    *slog.Logger
	life   *life
	client plainClient // set by Start
}

// plainClient is what is used of the client's producer.
type plainClient interface {
	Start() error
	Shutdown() error
	SendSync(context.Context, ...*primitive.Message) (*primitive.SendResult, error)
}

// NewSender checks the configuration and starts nothing.
func NewSender(cfg SenderConfig) (*Sender, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.SendTimeout = cmp.Or(cfg.SendTimeout, defaultSendTimeout)
	return &Sender{cfg: cfg, log: useLogger(cfg.Logger), life: newLife()}, nil
}

// Start connects, under an instance name of its own. With the name servers away
// it is an error that wraps txmq.ErrBrokerUnreachable, after at most 3 s each.
// After an error Start may be called again; after success it is an error.
func (s *Sender) Start(ctx context.Context) error {
	return s.life.start(func() error {
		if _, err := brokersOf(ctx, s.cfg.Broker, selfTestTopic); err != nil && !errors.Is(err, txmq.ErrRefused) {
			return err
		}
		opts := append(clientOptions(s.cfg.Broker, s.cfg.Group, newSelector()),
			producer.WithRetry(s.cfg.Retries),
			producer.WithSendMsgTimeout(s.cfg.SendTimeout))
		client, err := producer.NewDefaultProducer(opts...)
		if err != nil {
			return fmt.Errorf("rocketmq: producer: %w", err)
		}
		if err := client.Start(); err != nil { // and no Shutdown after this (Q18)
			return fmt.Errorf("rocketmq: start producer: %w", err)
		}
		s.client = client
		return nil
	})
}

type sendOutcome struct {
	result *primitive.SendResult
	err    error
}

// Send sends one message and returns when the broker has stored it durably.
// props are txmq's own properties. If ctx is done it returns ctx.Err() and has
// sent nothing; after that ctx counts no more, and sending takes at most
// SendTimeout per try and 5 s for the route. After an error the message may be
// stored all the same, except after txmq.ErrRefused and CheckMessage's errors.
//
// Errors wrap ErrNotDurable, txmq.ErrBrokerUnreachable, txmq.ErrRefused (with
// the *CodeError), txmq.ErrClosed, txmq.ErrNotStarted, or are CheckMessage's.
func (s *Sender) Send(ctx context.Context, m txmq.Message, props map[string]string) (Sent, error) {
	if err := ctx.Err(); err != nil {
		return Sent{}, err
	}
	if err := errors.Join(CheckMessage(m, false), checkOwn(props)); err != nil {
		return Sent{}, err
	}
	return s.put(ctx, newMessage(m, props))
}

// put is Send without its checks.
func (s *Sender) put(ctx context.Context, m *primitive.Message) (Sent, error) {
	if err := s.life.begin(); err != nil {
		return Sent{}, err
	}
	defer s.life.end()

	bound := time.Duration(1+s.cfg.Retries)*s.cfg.SendTimeout + routeAllowance
	patience := time.NewTimer(bound)
	defer patience.Stop()
	select {
	case out := <-s.dispatch(m):
		err := classify(out.err)
		if errors.Is(err, errNoRoute) {
			err = noRoute(context.WithoutCancel(ctx), s.cfg.Broker, m.Topic)
		}
		if err != nil {
			return Sent{}, err
		}
		h := halfOf(out.result)
		return Sent{
			MsgID: h.MsgID, OffsetMsgID: h.OffsetMsgID, BrokerName: h.BrokerName,
			QueueID: h.QueueID, QueueOffset: h.QueueOffset,
		}, durable(out.result, ErrNotDurable)
	case <-patience.C:
		return Sent{}, fmt.Errorf("%w: message was not answered within %v", txmq.ErrBrokerUnreachable, bound)
	}
}

// dispatch lets the client send, on a goroutine that Close waits for.
func (s *Sender) dispatch(msg *primitive.Message) <-chan sendOutcome {
	done := make(chan sendOutcome, 1)
	s.life.also()
	var wg sync.WaitGroup // for its Go; life does the waiting
	wg.Go(func() {
		defer s.life.end()
		var out sendOutcome
		defer func() {
			if cause := recover(); cause != nil {
				out.err = errors.New("client panicked")
				s.log.LogAttrs(context.Background(), slog.LevelError, "rocketmq client panicked in a send",
					slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			}
			done <- out
		}()
		out.result, out.err = s.client.SendSync(context.Background(), msg)
	})
	return done
}

// Close refuses new sends, waits for those in flight, up to ctx, and shuts the
// client down. It may be called more than once.
func (s *Sender) Close(ctx context.Context) error {
	return s.life.close(ctx, func() error {
		left := s.life.drain(ctx)
		shutdown(s.log, s.client.Shutdown)
		if left > 0 {
			return fmt.Errorf("rocketmq: %d sends of group %s left running: %w", left, s.cfg.Group, ctx.Err())
		}
		return nil
	})
}
