package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/hooks"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/crew"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
)

const (
	defaultWorkers        = 20
	defaultConsumeTimeout = 15 * time.Minute

	// cachedMiB is how many mebibytes of bodies the client may hold per queue;
	// its own default of 512 is a process's memory.
	cachedMiB = 64

	// settleTimeout bounds Close's wait for the client to note the results of
	// the last deliveries, and settleStep is how often it looks.
	settleTimeout = time.Second
	settleStep    = 10 * time.Millisecond
)

// ResultKind says what becomes of a delivery.
type ResultKind uint8

const (
	// Retry lets the broker deliver the message again after Result.Delay.
	Retry ResultKind = iota
	// Ack acknowledges it.
	Ack
	// DeadLetter moves it to the group's dead-letter topic, at once.
	DeadLetter
)

// Result is what Handle answers. The zero value is Retry, after one second.
type Result struct {
	Kind ResultKind
	// Delay is rounded up to the broker's next delay level; see Level.
	Delay time.Duration
}

// Subscription names a topic and the tags wanted from it.
type Subscription struct {
	Topic string
	Tags  string // "" for all, else "a || b"
}

// PushConfig says what to consume, and how.
type PushConfig struct {
	// Broker is where to consume from. Required.
	Broker txmq.Broker

	// Group is the consumer group. Required. All its members subscribe to the
	// same topics and tags.
	Group string

	// Subscriptions: at least one, each topic once. Required.
	Subscriptions []Subscription

	// Workers is how many Handles run at the same time, over all topics.
	// Default 20.
	Workers int

	// ConsumeTimeout is after how long the client sends a message back that is
	// still being handled; it looks about that often. Whole minutes. Default
	// 15m.
	ConsumeTimeout time.Duration

	// Handle is called for each delivery. Required. A panic counts as Retry.
	// The message's topic is the original one, also in a redelivery. ctx ends
	// when Close's time is over.
	Handle func(ctx context.Context, m *primitive.MessageExt) Result

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

func (c PushConfig) withDefaults() PushConfig {
	c.Workers = cmp.Or(c.Workers, defaultWorkers)
	c.ConsumeTimeout = cmp.Or(c.ConsumeTimeout, defaultConsumeTimeout)
	c.Subscriptions = slices.Clone(c.Subscriptions)
	return c
}

func (c PushConfig) validate() error {
	errs := []error{CheckBroker(c.Broker, "PushConfig.Broker"), CheckGroup(c.Group, "PushConfig.Group")}
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "PushConfig." + field, Value: value, Want: want})
	}
	if len(c.Subscriptions) == 0 {
		bad("Subscriptions", nil, "at least one")
	}
	seen := map[string]bool{}
	for i, s := range c.Subscriptions {
		field := fmt.Sprintf("Subscriptions[%d].", i)
		errs = append(errs, CheckSubscribed(s.Topic, "PushConfig."+field+"Topic"))
		if seen[s.Topic] && s.Topic != "" {
			bad(field+"Topic", s.Topic, "each topic once")
		}
		seen[s.Topic] = true
		if !IsText(s.Tags) {
			bad(field+"Tags", cut(s.Tags), "nothing, or tags with || between them")
		}
	}
	if c.Workers < 0 || c.Workers > 1000 {
		bad("Workers", c.Workers, "1 to 1000")
	}
	if c.ConsumeTimeout < 0 || c.ConsumeTimeout%time.Minute != 0 {
		bad("ConsumeTimeout", c.ConsumeTimeout, "whole minutes")
	}
	if c.Handle == nil {
		bad("Handle", nil, "a function")
	}
	return errors.Join(errs...)
}

// PushConsumer delivers messages to Handle, several at a time and in no order.
type PushConsumer struct {
	cfg  PushConfig
	log  *slog.Logger
	life *life
	gate *gate

	base   context.Context // ends with the component, which no call's context does
	cancel context.CancelFunc
	slots  chan struct{}
	crew   crew.Crew // runs the Handles
	marks  *marks

	client    pushClient                              // set by Start
	committed func() map[primitive.MessageQueue]int64 // set by Start
}

// pushClient is what is used of the client's push consumer.
type pushClient interface {
	Start() error
	Shutdown() error
	Suspend()
	Resume()
}

// NewPushConsumer checks the configuration and starts nothing.
func NewPushConsumer(cfg PushConfig) (*PushConsumer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	base, cancel := context.WithCancel(context.Background())
	return &PushConsumer{
		cfg: cfg, log: useLogger(cfg.Logger), life: newLife(), gate: newGate(),
		base: base, cancel: cancel, slots: make(chan struct{}, cfg.Workers), marks: newMarks(),
	}, nil
}

// Start begins to consume, a new group from the first message that the topic
// still holds. With the name servers away it is an error that wraps
// txmq.ErrBrokerUnreachable, after at most 3 s each; a topic that does not
// exist (ErrNoTopic), or that no broker lets the group consume (ACL), is one that
// wraps txmq.ErrRefused. An error leaves nothing running, and Start may be called
// again; after success it is an error.
func (c *PushConsumer) Start(ctx context.Context) error {
	return c.life.start(func() error {
		if s, ok := standIn(ctx); ok {
			s.push(c)
			return nil
		}
		brokers, err := c.brokers(ctx)
		if err != nil {
			return err
		}
		if err := makeTopic(ctx, c.cfg.Broker, retryPrefix+c.cfg.Group, brokers); err != nil {
			// The first heart-beat makes it too; the client sees it up to 40 s later.
			c.log.LogAttrs(ctx, slog.LevelWarn, "retry topic not made in advance, first retries may be late",
				slog.String("group", c.cfg.Group), slog.Any("error", err))
		}
		client, err := consumer.NewPushConsumer(c.options()...)
		if err != nil {
			return fmt.Errorf("rocketmq: push consumer: %w", err)
		}
		for _, s := range c.cfg.Subscriptions {
			tags := cmp.Or(strings.TrimSpace(s.Tags), "*")
			if err := client.Subscribe(s.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, c.consume); err != nil {
				return fmt.Errorf("rocketmq: subscribe to %s: %w", s.Topic, err)
			}
		}
		c.client = client
		c.committed = func() map[primitive.MessageQueue]int64 {
			// Not GetConsumerStatus, which reads the offsets without their lock.
			offsets := map[primitive.MessageQueue]int64{}
			for q, info := range client.GetConsumerRunningInfo(false).MQTable {
				offsets[q] = info.CommitOffset
			}
			return offsets
		}
		// After an error the client has shut itself down, if it had started.
		if err := client.Start(); err != nil {
			return fmt.Errorf("rocketmq: start push consumer: %w", err)
		}
		return nil
	})
}

// brokers are those of all topics. It is an error if a topic has none, or none
// that lets the group in.
func (c *PushConsumer) brokers(ctx context.Context) ([]remoting.BrokerAddr, error) {
	permit := newPermit(c.cfg.Broker, c.log)
	var all []remoting.BrokerAddr
	for _, s := range c.cfg.Subscriptions {
		brokers, err := brokersOf(ctx, c.cfg.Broker, s.Topic)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("group %s consume topic %s", c.cfg.Group, s.Topic)
		if err := permit.ask(ctx, brokers, what, toConsume(c.cfg.Group, s.Topic)...); err != nil {
			return nil, err
		}
		for _, b := range brokers {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	return all, nil
}

func (c *PushConsumer) options() []consumer.Option {
	opts := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(slices.Clone(c.cfg.Broker.NameServers))), // Q48
		consumer.WithGroupName(c.cfg.Group),
		consumer.WithInstance(instanceName(c.cfg.Group)), // Q01, Q35
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), // Q37
		consumer.WithConsumeMessageBatchMaxSize(1),                     // Q33
		consumer.WithMaxReconsumeTimes(math.MaxInt32),                  // Handle decides
		consumer.WithConsumeGoroutineNums(c.cfg.Workers),
		consumer.WithConsumeTimeout(c.cfg.ConsumeTimeout),
		consumer.WithPullThresholdSizeForQueue(cachedMiB),
		consumer.WithFilterMessageHook([]hooks.FilterMessageHook{c.pulled}),
	}
	if b := c.cfg.Broker; b.AccessKey != "" {
		opts = append(opts, consumer.WithCredentials(primitive.Credentials{
			AccessKey: b.AccessKey, SecretKey: string(b.SecretKey),
		}))
	}
	return opts
}

// Suspend stops pulling, and holds back what was pulled before, until Resume.
// Handles that run go on. Before Start and after Close it does nothing.
func (c *PushConsumer) Suspend() {
	if c.life.begin() != nil {
		return
	}
	defer c.life.end()
	c.gate.shut()
	c.client.Suspend()
}

// Resume undoes Suspend.
func (c *PushConsumer) Resume() {
	if c.life.begin() != nil {
		return
	}
	defer c.life.end()
	c.gate.open()
	c.client.Resume()
}

// Close starts no more Handles, waits for those that run, up to ctx, then ends
// their contexts and shuts the client down. What was pulled but not handled
// stays unacknowledged, and so does what a Handle returns after that. Its error
// is ctx's, if Handles were left running. It may be called more than once.
func (c *PushConsumer) Close(ctx context.Context) error {
	// Before the state says closed: what is pulled after that is dropped, and no
	// pull may move the offset past it.
	if c.life.begin() == nil {
		c.client.Suspend()
		c.life.end()
	}
	return c.life.close(ctx, func() error {
		left := c.life.drain(ctx)
		c.settle()
		c.cancel()
		shutdown(c.log, c.client.Shutdown)
		c.crew.Close()
		c.gate.end() // held ones go back to the client, which has dropped their queues
		if left > 0 {
			return fmt.Errorf("rocketmq: %d handlers of group %s left running: %w", left, c.cfg.Group, ctx.Err())
		}
		return nil
	})
}

// settle waits until the client has noted the results of the deliveries that
// are over. It does so after Handle has returned, and what it has not noted at
// its shutdown is delivered again. The wait also lets a pull that was past the
// filter before the close reach its queue: the client panics when that meets
// the shutdown (Q32).
func (c *PushConsumer) settle() {
	ctx, settled := context.WithTimeout(context.Background(), settleTimeout)
	defer settled()
	round := 0
	// Run returns nil, always.
	_ = loop.Loop{Interval: settleStep, Step: func(context.Context) (bool, error) {
		if round++; round > 2 && c.marks.reached(c.committed()) {
			settled()
		}
		return false, nil
	}}.Run(ctx)
}
