package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// MissingID says what becomes of a message without event ID.
type MissingID uint8

const (
	// MissingDead buries it at once, in a DEAD row under a key made from its
	// position, and in the dead-letter queue. The default.
	MissingDead MissingID = iota
	// MissingRetry leaves it to the broker's retries, until a program that can
	// name it comes. It costs no attempts.
	MissingRetry
)

// Wait says how to wait in place. The zero value does not wait; a set Max with
// Poll 0 polls every 50ms. It holds one of the Workers meanwhile.
type Wait struct {
	Poll time.Duration // between two looks. Default 50ms
	Max  time.Duration // in all; less than Deadline, which bounds all that comes before the handler
}

// Config says what to consume and how. Fields marked Required must be set; a
// zero value elsewhere means the default.
type Config struct {
	// Store is the database that the handlers change. Required, unless each has
	// a Store of its own.
	Store *model.Store
	// Broker says how to reach RocketMQ. Required.
	Broker txmq.Broker
	// Group is the consumer group. Required.
	Group string
	// Handlers: at least one. Each message has one: several of one topic have
	// Tags, none of them twice. Required.
	Handlers []Handler

	// AllowResubscribe lets Run go on where a live member of the group subscribes
	// to other topics or tags, for a roll-out that changes them: it is logged.
	// While both kinds run, RocketMQ filters for all by what the last heart-beat
	// said, so messages of a tag that only one kind wants may be skipped for the
	// whole group, for good. New topics only wait. Default: Run fails with
	// txmq.ErrSubscriptionMismatch.
	AllowResubscribe bool

	// Workers is how many deliveries run at a time, 1 to 1000. Default 20. A pool of the
	// *gorm.DB smaller than Workers + 4 makes them wait for one another.
	Workers int
	// Deadline is what a handler gets. Default 30s; less than Lease.
	Deadline time.Duration
	// Lease is how long a PROCESSING row is its worker's without a heartbeat,
	// by the database's clock. Default 60s; less than ConsumeTimeout.
	Lease time.Duration
	// ConsumeTimeout is after how long the client sends a message back although
	// its handler still runs. Whole minutes. Default 15m.
	ConsumeTimeout time.Duration
	// ClaimWait is how long a delivery waits for another process's open
	// transaction on its key, in whole seconds (the server counts so). Default
	// 1s.
	ClaimWait time.Duration
	// Wait has a delivery whose event another worker has in progress look again
	// in place, until that is decided, before it asks for redelivery. Default:
	// no waiting.
	Wait Wait
	// Strict has an Atomic handler's record written as PROCESSING, under its
	// owner, and turned to SUCCESS by owner and version as the transaction's last
	// statement: one more. For handlers that may get at the connection past the
	// guard (a driver's own calls, a library that unwraps it). Who commits by
	// itself, and then fails or dies, leaves no SUCCESS over half the work; who
	// rolls back by itself is not acknowledged.
	Strict bool
	// MaxAttempts is after how many runs an event is DEAD. Default 16.
	MaxAttempts int
	// Backoff between them.
	Backoff Backoff
	// MissingID says what becomes of a message without event ID.
	MissingID MissingID
	// OmitBody keeps body and properties out of DEAD rows, which then can't be
	// retried after the topic's retention.
	OmitBody bool
	// Drain is how long a stop waits for handlers under way. Default 30s.
	Drain time.Duration

	// Observe sees every event. Default: nobody.
	Observe txmq.Observe
	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Deadline, 30*time.Second)
	def(&c.Lease, time.Minute)
	def(&c.ConsumeTimeout, 15*time.Minute)
	def(&c.ClaimWait, time.Second)
	def(&c.Drain, 30*time.Second)
	if c.Workers == 0 {
		c.Workers = 20
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 16
	}
	if c.Wait.Max != 0 {
		def(&c.Wait.Poll, 50*time.Millisecond)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Backoff = c.Backoff.withDefaults()
	handlers := make([]Handler, len(c.Handlers))
	copy(handlers, c.Handlers)
	for i := range handlers {
		if handlers[i].Name == "" {
			handlers[i].Name = c.Group + ":" + handlers[i].Topic
		}
		if handlers[i].Store == nil {
			handlers[i].Store = c.Store
		}
		if handlers[i].EventID == nil {
			handlers[i].EventID = arrival.EventID
		}
	}
	c.Handlers = handlers
	return c
}

func (c Config) check() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "consumer.Config." + field, Value: value, Want: want})
	}
	if slices.ContainsFunc(c.Handlers, func(h Handler) bool { return h.Store == nil }) || c.Store == nil && len(c.Handlers) == 0 {
		bad("Store", nil, "what model.Open returned, here or for each handler")
	}
	errs = append(errs, rocketmq.CheckBroker(c.Broker, "consumer.Config.Broker"),
		rocketmq.CheckGroup(c.Group, "consumer.Config.Group"))
	if c.Workers < 1 || c.Workers > 1000 {
		bad("Workers", c.Workers, "1 to 1000")
	}
	if c.MaxAttempts < 1 {
		bad("MaxAttempts", c.MaxAttempts, "1 or more")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Deadline", c.Deadline}, {"Lease", c.Lease}, {"ClaimWait", c.ClaimWait}, {"Drain", c.Drain}} {
		if d.value <= 0 {
			bad(d.field, d.value, "more than 0")
		}
	}
	if c.ConsumeTimeout < time.Minute || c.ConsumeTimeout%time.Minute != 0 {
		bad("ConsumeTimeout", c.ConsumeTimeout, "whole minutes, 1m or more")
	}
	if c.Deadline >= c.Lease {
		bad("Deadline", c.Deadline, fmt.Sprintf("less than Lease (%v)", c.Lease))
	}
	if c.Lease >= c.ConsumeTimeout {
		bad("Lease", c.Lease, fmt.Sprintf("less than ConsumeTimeout (%v), after which the client sends a running message back", c.ConsumeTimeout))
	}
	switch w := c.Wait; {
	case w.Max < 0 || w.Max != 0 && w.Max >= c.Deadline:
		bad("Wait.Max", w.Max, fmt.Sprintf("0, or less than Deadline (%v)", c.Deadline))
	case w.Poll < 0, w.Max == 0 && w.Poll != 0, w.Max != 0 && w.Poll > w.Max:
		bad("Wait.Poll", w.Poll, "more than 0 and at most Wait.Max")
	}
	if c.MissingID > MissingRetry {
		bad("MissingID", uint8(c.MissingID), "MissingDead or MissingRetry")
	}
	errs = append(errs, c.Backoff.check()...)
	errs = append(errs, c.checkHandlers()...)
	return errors.Join(errs...)
}
