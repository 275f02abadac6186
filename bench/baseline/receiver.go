package baseline

import (
	"context"
	"math"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"
)

// Receiver consumes with the raw client, without deduplication.
type Receiver struct{ client puller }

type puller interface {
	Start() error
	Shutdown() error
}

// Handle is a handler's work in its transaction.
type Handle func(ctx context.Context, tx *gorm.DB, m *primitive.MessageExt) error

// Options of a Receiver. All are required.
type Options struct {
	DB         *gorm.DB
	NameServer string
	Group      string
	Topic      string
	Workers    int
	Handle     Handle
	// Before is called when a message comes in, After with what became of it.
	Before func()
	After  func(error)
}

// StartReceiver subscribes. Closing is the caller's.
func StartReceiver(o Options) (*Receiver, error) {
	c, err := consumer.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.NameServer})),
		consumer.WithGroupName(o.Group),
		consumer.WithInstance(o.Group),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithMaxReconsumeTimes(math.MaxInt32),
		consumer.WithConsumeGoroutineNums(o.Workers))
	if err != nil {
		return nil, err
	}
	err = c.Subscribe(o.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			o.Before()
			err := Receive(ctx, o.DB, o.Handle, ms...)
			o.After(err)
			if err != nil {
				return consumer.ConsumeRetryLater, nil //nolint:nilerr // beside an error the client takes any result for success
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &Receiver{client: c}, nil
}

// Close disconnects.
func (r *Receiver) Close() error { return r.client.Shutdown() }

// Receive runs handle in one transaction.
func Receive(ctx context.Context, db *gorm.DB, handle Handle, ms ...*primitive.MessageExt) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, m := range ms {
			if err := handle(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}
