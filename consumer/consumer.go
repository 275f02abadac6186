package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/uuid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/crew"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// source delivers messages until it is closed. internal/rocketmq's push
// consumer is one; tests stand in others.
type source interface {
	Start(ctx context.Context) error
	Close(ctx context.Context) error
}

// Consumer runs one consumer group's handlers. Its methods are safe for
// concurrent use.
type Consumer struct {
	cfg    Config
	routes routes
	bases  map[*model.Store]*database
	crew   crew.Crew // runs the handlers
	source source
	// members asks the brokers for the group's live members.
	members func(context.Context) ([]rocketmq.LiveGroup, error)
	keys    *keyLock
	owner   string
	debts   debts
	ready   chan struct{}

	mu    sync.Mutex
	ended bool // Run was called
}

// New checks the configuration, and starts nothing. All bad fields are reported
// at once, each a *txmq.FieldError.
func New(cfg Config) (*Consumer, error) {
	logger := cfg.Logger // nil too: a logger that nobody asked for would become the client's for good
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	owner := newOwner()
	c := &Consumer{
		cfg: cfg, routes: newRoutes(cfg.Handlers), bases: newDatabases(cfg, owner), keys: newKeyLock(),
		owner: owner, ready: make(chan struct{}),
	}
	source, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
		Broker: cfg.Broker, Group: cfg.Group, Subscriptions: c.routes.subscriptions(), Workers: cfg.Workers,
		ConsumeTimeout: cfg.ConsumeTimeout, Handle: c.deliver, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c.source = source
	c.members = func(ctx context.Context) ([]rocketmq.LiveGroup, error) {
		return rocketmq.Subscriptions(ctx, cfg.Broker, cfg.Group)
	}
	return c, nil
}

// newOwner names this worker in the records it holds.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 20 {
		host = "host"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), uuid.NewString()[:8])
}

// Ready blocks until the consumer has subscribed, or ctx ends.
func (c *Consumer) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run consumes until ctx ends, then starts no new handler, waits up to Drain
// for those under way, and returns nil. What did not finish is delivered again.
// It fails at the start when a database or the broker can't be reached; with the
// name servers away after at most 6 s for each, which it names, with
// txmq.ErrBrokerUnreachable. And it fails with txmq.ErrSubscriptionMismatch when the group has live members that subscribe to
// something else. A consumer runs once; make a new one to run again.
func (c *Consumer) Run(ctx context.Context) (err error) {
	c.mu.Lock()
	again := c.ended
	c.ended = true
	c.mu.Unlock()
	if again {
		return fmt.Errorf("consumer: Run was called before: %w", txmq.ErrClosed)
	}
	defer c.crew.Close()
	if err := c.agree(ctx); err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	stop, err := startAll(ctx, c.bases)
	clean := true
	defer func() { err = errors.Join(err, stop(clean)) }()
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	if err := c.source.Start(ctx); err != nil {
		return fmt.Errorf("consumer: start: %w", err)
	}
	close(c.ready)
	c.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "consumer started", slog.String("group", c.cfg.Group))
	<-ctx.Done()

	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Drain)
	defer cancel()
	if err := c.source.Close(drain); err != nil {
		clean = false // their messages are not acknowledged; nothing is lost
		c.cfg.Logger.LogAttrs(drain, slog.LevelWarn, "consumer stopped before all its handlers ended",
			slog.String("group", c.cfg.Group), slog.Any("error", err))
		return nil
	}
	c.cfg.Logger.LogAttrs(drain, slog.LevelInfo, "consumer stopped", slog.String("group", c.cfg.Group))
	return nil
}

// deliver handles one delivery of the broker. ctx ends when a stop has run out
// of its drain.
func (c *Consumer) deliver(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
	start := time.Now()
	h, ok := c.routes.of(m)
	if !ok { // the broker delivers what is subscribed to, so this is a message of another version of the group
		c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "no handler for the topic and tag of a delivery",
			slog.String("topic", m.Topic), slog.String("tag", m.GetTags()))
		return rocketmq.Result{Kind: rocketmq.Retry, Delay: c.cfg.Backoff.Max}
	}
	r := c.newRun(h, m)
	end := r.deliver(ctx)
	r.report(ctx, end, time.Since(start))
	return end.result
}
