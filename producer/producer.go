package producer

import (
	"context"
	"errors"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/rocketmq"
)

// halves is the broker's side: *rocketmq.TxProducer, or a simulation of it. Its
// methods have the promises that are written there.
type halves interface {
	Start(ctx context.Context) error
	SendHalf(ctx context.Context, m txmq.Message, props map[string]string,
		local func(rocketmq.Half) txmq.Verdict) (rocketmq.HalfResult, error)
	Close(ctx context.Context) error
}

// Producer sends messages paired with local transactions, and answers the
// broker's check-backs for its group. Safe for concurrent use.
type Producer struct {
	cfg    Config
	check  *checker.Checker
	halves halves
	now    func() time.Time

	settleLimit time.Duration
}

// New checks the configuration, all bad fields at once, each a
// *txmq.FieldError, and starts nothing.
func New(cfg Config) (*Producer, error) {
	return newProducer(cfg, func(c rocketmq.TxConfig) (halves, error) { return rocketmq.NewTxProducer(c) })
}

func newProducer(cfg Config, connect func(rocketmq.TxConfig) (halves, error)) (*Producer, error) {
	p := &Producer{cfg: cfg.withDefaults(), now: time.Now, settleLimit: settleLimit}
	check, checkErr := checker.New(cfg.checker())
	p.check = check
	h, connectErr := connect(cfg.rocketmq(func(ctx context.Context, m *primitive.MessageExt) txmq.Verdict {
		return p.check.Check(ctx, m)
	}))
	p.halves = h
	if err := joinFields(fieldNames, cfg.validate(), checkErr, connectErr); err != nil {
		return nil, err
	}
	return p, nil
}

// Start connects and makes the group known to the topics' brokers. An error
// that Is txmq.ErrBrokerUnreachable may pass: call Start again. After success
// it is an error.
func (p *Producer) Start(ctx context.Context) error {
	if err := p.halves.Start(ctx); err != nil {
		return &txmq.OpError{Op: "start producer", Err: err}
	}
	return nil
}

// Close refuses new sends, waits for those in flight and for checks, up to
// Config.Drain and ctx, and disconnects; its error says that something was left
// running. Close the database after it. It may be called more than once.
func (p *Producer) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Drain)
	defer cancel()
	if err := errors.Join(p.halves.Close(ctx), p.check.Close(ctx)); err != nil {
		return &txmq.OpError{Op: "close producer", Err: err}
	}
	return nil
}
