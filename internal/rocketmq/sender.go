package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	errs = append(errs, checkTimeout("SenderConfig.SendTimeout", c.SendTimeout))
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
	cfg     SenderConfig
	log     *slog.Logger
	life    *life
	route   *selector
	stopped chan struct{} // closed when Close waits no longer
	client  plainClient   // set by Start
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
	return &Sender{
		cfg: cfg, log: useLogger(cfg.Logger), life: newLife(), route: newSelector(), stopped: make(chan struct{}),
	}, nil
}

// Start connects, under an instance name of its own. With the name servers away
// it is an error that wraps txmq.ErrBrokerUnreachable, after at most 3 s each.
// After an error Start may be called again; after success it is an error.
func (s *Sender) Start(ctx context.Context) error {
	return s.life.start(func() error {
		if _, err := brokersOf(ctx, s.cfg.Broker, selfTestTopic); err != nil && !errors.Is(err, txmq.ErrRefused) {
			return err
		}
		opts := append(clientOptions(s.cfg.Broker, s.cfg.Group, s.route),
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

// Send sends one message and returns when the broker has stored it durably.
// props are txmq's own properties. If ctx is done it returns ctx.Err() and has
// sent nothing; after that ctx counts no more, and sending takes at most
// SendTimeout per try and 5 s for the route.
//
// Errors are those of Begin and Sending.Try.
func (s *Sender) Send(ctx context.Context, m txmq.Message, props map[string]string) (Sent, error) {
	if err := ctx.Err(); err != nil {
		return Sent{}, err
	}
	g, err := s.Begin(m, props)
	if err != nil {
		return Sent{}, err
	}
	defer g.End()
	return g.Try(context.WithoutCancel(ctx))
}

// put is Send without its checks, of a message that is sent once.
func (s *Sender) put(ctx context.Context, m *primitive.Message) (Sent, error) {
	g, err := s.begin(func() *primitive.Message { return m })
	if err != nil {
		return Sent{}, err
	}
	defer g.End()
	return g.Try(context.WithoutCancel(ctx))
}

// Begin checks m and counts its sending as in flight until End, however many
// tries it takes. Errors are CheckMessage's, txmq.ErrNotStarted and
// txmq.ErrClosed.
func (s *Sender) Begin(m txmq.Message, props map[string]string) (*Sending, error) {
	if err := errors.Join(CheckMessage(m, false), checkOwn(props)); err != nil {
		return nil, err
	}
	return s.begin(func() *primitive.Message { return newMessage(m, props) })
}

func (s *Sender) begin(fresh func() *primitive.Message) (*Sending, error) {
	if err := s.life.begin(); err != nil {
		return nil, err
	}
	return &Sending{s: s, fresh: fresh}, nil
}

// Stopped is closed when Close waits no longer for what is in flight; whoever
// pauses between two tries gives up then.
func (s *Sender) Stopped() <-chan struct{} { return s.stopped }

// Close refuses new sends, waits for those in flight, up to ctx, and shuts the
// client down. It may be called more than once.
func (s *Sender) Close(ctx context.Context) error {
	return s.life.close(ctx, func() error {
		left := s.life.drain(ctx)
		close(s.stopped)
		shutdown(s.log, s.client.Shutdown)
		if left > 0 {
			return fmt.Errorf("rocketmq: %d sends of group %s left running: %w", left, s.cfg.Group, ctx.Err())
		}
		return nil
	})
}
