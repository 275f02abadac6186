package producer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// Defaults of Config, beside those of package checker.
const (
	// DefaultRetries: with one of two brokers down, the third try at the latest
	// meets the other. RocketMQ's Java client has the same.
	DefaultRetries     = 2
	DefaultSendTimeout = 3 * time.Second
	DefaultDrain       = 30 * time.Second
)

// Config says what to send with. Only the fields marked Required must be set; a
// zero value elsewhere means the default.
type Config struct {
	// Store is the database that the local transactions run in. Required.
	Store *model.Store

	// Broker is where the messages go. Required.
	Broker txmq.Broker

	// Group is the producer group: the broker asks any process of it whether a
	// local transaction committed, so all of them use the same database. 1 to
	// 120 letters, digits, _ - % |. Required.
	Group string

	// Topics are those this service sends to. Within two seconds after Start
	// their brokers know the group and check back the halves that an earlier
	// process left, though nothing was sent. Required.
	Topics []string

	// SendTimeout is for one try to store the half message. Default 3s.
	SendTimeout time.Duration

	// Retries is how often a half message is sent again when it was refused in
	// passing or not answered in time. A try that was stored without an answer
	// is one more half of the same attempt: if the transaction commits, the
	// message is delivered once more, and consumers tell it by its event ID. At
	// most 16; -1 for none, and an error for the caller instead. Default 2.
	Retries int

	// FenceAfter is the age at which a half message whose transaction has left
	// no row is rolled back. A local transaction that takes longer may die with
	// txmq.ErrFenced. Default 1m.
	FenceAfter time.Duration

	// MaxChecks is the broker's transactionCheckMax. Default 15.
	MaxChecks int

	// CheckInterval is the broker's transactionCheckInterval. Default 30s.
	CheckInterval time.Duration

	// CheckTimeout is after how long a check-back is answered Unknown, which
	// makes the broker ask again. Default 2s.
	CheckTimeout time.Duration

	// Foreign answers check-backs of halves that carry neither database ID nor
	// attempt, while old code still sends in the same group; see
	// checker.Config.Foreign. Default: Unknown.
	Foreign func(*primitive.MessageExt) txmq.Verdict

	// Drain is how long Close waits for sends and checks in flight. Default 30s.
	Drain time.Duration

	// Observe receives HalfSent, SendEnded, EndTransactionLost and Checked.
	Observe txmq.Observe

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	never      = -1
	maxRetries = 16

	wantRetries  = "1 to 16, -1 for none, or 0 for the default"
	wantPositive = "more than 0, or 0 for the default"
)

// retries is the number that a setting means.
func retries(setting int) int {
	switch setting {
	case 0:
		return DefaultRetries
	case never:
		return 0
	default:
		return setting
	}
}

func (c Config) withDefaults() Config {
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) checker() checker.Config {
	return checker.Config{
		Store: c.Store, Group: c.Group,
		FenceAfter: c.FenceAfter, MaxChecks: c.MaxChecks, Interval: c.CheckInterval, Timeout: c.CheckTimeout,
		Foreign: c.Foreign, Observe: c.Observe, Logger: c.Logger,
	}
}

// rocketmq is to be called before defaults are filled in: a logger that nobody
// asked for would become the client's for good.
func (c Config) rocketmq(check func(context.Context, *primitive.MessageExt) txmq.Verdict) rocketmq.TxConfig {
	return rocketmq.TxConfig{
		Broker: c.Broker, Group: c.Group, Topics: c.Topics, Retries: retries(c.Retries), SendTimeout: cmp.Or(c.SendTimeout, DefaultSendTimeout),
		Check: check, CheckTimeout: cmp.Or(c.CheckTimeout, checker.DefaultTimeout), Logger: c.Logger,
	}
}

// validate reports what the parts below don't.
func (c Config) validate() error {
	var errs []error
	if len(c.Topics) == 0 {
		errs = append(errs, &txmq.FieldError{Field: "producer.Config.Topics", Want: "the topics this service sends to"})
	}
	if c.Retries < never || c.Retries > maxRetries {
		errs = append(errs, &txmq.FieldError{Field: "producer.Config.Retries", Value: c.Retries, Want: wantRetries})
	}
	if c.Drain < 0 {
		errs = append(errs, &txmq.FieldError{Field: "producer.Config.Drain", Value: c.Drain, Want: wantPositive})
	}
	return errors.Join(errs...)
}

// fieldNames are the names that the parts' settings have here.
var fieldNames = strings.NewReplacer(
	"checker.Config.Interval", "producer.Config.CheckInterval",
	"checker.Config.Timeout", "producer.Config.CheckTimeout",
	"checker.Config.", "producer.Config.",
	"TxConfig.", "producer.Config.",
)

// joinFields joins the parts' errors under the names of the Config that they
// were made from, each field once.
func joinFields(names *strings.Replacer, errs ...error) error {
	var out []error
	seen := map[string]bool{}
	var add func(error)
	add = func(err error) {
		if many, ok := err.(interface{ Unwrap() []error }); ok { // errors.Join's, taken apart
			for _, e := range many.Unwrap() {
				add(e)
			}
			return
		}
		var f *txmq.FieldError
		if !errors.As(err, &f) {
			out = append(out, err)
			return
		}
		name := names.Replace(f.Field)
		if !seen[name] {
			seen[name] = true
			out = append(out, &txmq.FieldError{Field: name, Value: f.Value, Want: f.Want})
		}
	}
	for _, err := range errs {
		if err != nil {
			add(err)
		}
	}
	return errors.Join(out...)
}
