package rocketmq

import (
	"context"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// StandIn takes the RocketMQ client's place in components that are started with
// its context: bench counts what txmq's own code does, with no broker about.
// Nobody outside this module can make one.
type StandIn struct {
	// Consume is given the callback that a push consumer would subscribe with.
	Consume func(callback func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error))
	// Send is the client's SendMessageInTransaction, with the listener that a
	// transaction producer gives it.
	Send func(context.Context, primitive.TransactionListener, *primitive.Message) (*primitive.TransactionSendResult, error)
}

type standInKey struct{}

// Context is the one to start components with.
func (s *StandIn) Context(parent context.Context) context.Context {
	return context.WithValue(parent, standInKey{}, s)
}

func standIn(ctx context.Context) (*StandIn, bool) {
	s, ok := ctx.Value(standInKey{}).(*StandIn)
	return s, ok
}

// idle is a client that nothing comes to.
type idle struct{}

func (idle) Start() error    { return nil }
func (idle) Shutdown() error { return nil }
func (idle) Suspend()        {}
func (idle) Resume()         {}

func (s *StandIn) push(c *PushConsumer) {
	c.client = idle{}
	c.committed = func() map[primitive.MessageQueue]int64 { return nil }
	s.Consume(c.consume)
}

// txStandIn is a transaction producer's client.
type txStandIn struct {
	idle
	listener primitive.TransactionListener
	send     func(context.Context, primitive.TransactionListener, *primitive.Message) (*primitive.TransactionSendResult, error)
}

// SendMessageInTransaction hands over to the stand-in.
func (t *txStandIn) SendMessageInTransaction(ctx context.Context, m *primitive.Message) (*primitive.TransactionSendResult, error) {
	return t.send(ctx, t.listener, m)
}
