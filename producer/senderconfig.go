package producer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/backoff"
	"github.com/txmq/txmq/internal/rocketmq"
)

// SenderConfig says how to send messages that belong to no transaction. Only
// the fields marked Required must be set; a zero value elsewhere means the
// default.
type SenderConfig struct {
	// Broker is where the messages go. Required.
	Broker txmq.Broker

	// Group is the producer group, 1 to 120 letters, digits, _ - % |. Not one
	// that a Producer uses: the broker would ask this process about halves, and
	// it knows nothing of them. Required.
	Group string

	// SendTimeout is for one try. Default 3s.
	SendTimeout time.Duration

	// Retries is how often a message is sent again when the broker was busy,
	// away, or did not answer in time. At most 16; -1 for none. Default 2.
	Retries int

	// Backoff is the pause before each retry.
	Backoff Backoff

	// Drain is how long Close waits for sends in flight, their retries included.
	// Default 30s.
	Drain time.Duration

	// Observe receives one Sent for each Send.
	Observe txmq.Observe

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

// Backoff doubles a pause from one try to the next, spread by ±20 %, so that
// many senders do not come back to a busy broker at once.
type Backoff struct {
	Min time.Duration // before the first retry. Default 200ms
	Max time.Duration // never more. Default 5s, or Min if that is more
}

func (c SenderConfig) withDefaults() SenderConfig {
	c.Retries = retries(c.Retries)
	c.SendTimeout = cmp.Or(c.SendTimeout, DefaultSendTimeout)
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	c.Backoff.Min = cmp.Or(c.Backoff.Min, 200*time.Millisecond)
	c.Backoff.Max = cmp.Or(c.Backoff.Max, max(c.Backoff.Min, 5*time.Second))
	return c
}

func (b Backoff) schedule() backoff.Schedule {
	return backoff.Schedule{Min: b.Min, Max: b.Max, Factor: 2, Jitter: 0.2}
}

// rocketmq leaves the retries to Send: the client's own come without a pause
// (Q23).
func (c SenderConfig) rocketmq() rocketmq.SenderConfig {
	return rocketmq.SenderConfig{Broker: c.Broker, Group: c.Group, SendTimeout: c.SendTimeout, Logger: c.Logger}
}

// validate reports what the part below doesn't. c has its defaults.
func (c SenderConfig) validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "producer.SenderConfig." + field, Value: value, Want: want})
	}
	if c.Retries < 0 || c.Retries > maxRetries {
		bad("Retries", c.Retries, wantRetries)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Backoff.Min", c.Backoff.Min}, {"Backoff.Max", c.Backoff.Max}, {"Drain", c.Drain}} {
		if d.value < 0 {
			bad(d.field, d.value, wantPositive)
		}
	}
	if c.Backoff.Max >= 0 && c.Backoff.Max < c.Backoff.Min {
		bad("Backoff.Max", c.Backoff.Max, fmt.Sprintf("Backoff.Min (%v) or more, or 0 for the default", c.Backoff.Min))
	}
	return errors.Join(errs...)
}

// senderFields are the names that the part's settings have here.
var senderFields = strings.NewReplacer(
	"producer.SenderConfig.", "producer.SenderConfig.", // are so already
	"SenderConfig.", "producer.SenderConfig.",
)
