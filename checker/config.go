package checker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// Defaults of Config; MaxChecks and Interval are the broker's own.
const (
	DefaultFenceAfter = time.Minute
	DefaultMaxChecks  = 15
	DefaultInterval   = 30 * time.Second
	DefaultTimeout    = 2 * time.Second
)

// Config says how to check. Only Store must be set; a zero value elsewhere
// means the default.
type Config struct {
	// Store is the database whose transaction log decides. Halves of other
	// databases are answered Unknown. Required.
	Store *model.Store

	// Group is noted on fences. Default: the group that the half names.
	Group string

	// FenceAfter is the age at which a half without a row is fenced and rolled
	// back. A local transaction that takes longer dies with txmq.ErrFenced.
	// Less than MaxChecks times Interval, so that it is decided before the
	// broker gives up. Default 1m.
	FenceAfter time.Duration

	// MaxChecks is the broker's transactionCheckMax, 2 or more: at the last
	// check a half without a row is fenced whatever its age. A number above the
	// broker's leaves undecided halves to be discarded. Default 15.
	MaxChecks int

	// Interval is the broker's transactionCheckInterval. Times the number of
	// checks it bounds the age, in case the sender's clock was wrong. Default
	// 30s.
	Interval time.Duration

	// Timeout is after how long a check is answered Unknown. Default 2s.
	Timeout time.Duration

	// Foreign answers for halves that carry neither database ID nor attempt,
	// while old and new code share a producer group. Anything but Commit and
	// Rollback is Unknown. Rollback is for what can't commit any more: while the
	// old code runs, a row that is missing may still come. Default: Unknown.
	Foreign func(*primitive.MessageExt) txmq.Verdict

	// Observe receives one txmq.Checked for each check.
	Observe txmq.Observe

	// Logger gets fences and what is wrong. Default: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.FenceAfter = cmp.Or(c.FenceAfter, DefaultFenceAfter)
	c.MaxChecks = cmp.Or(c.MaxChecks, DefaultMaxChecks)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Observe = quiet(c.Observe, c.Logger)
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "checker.Config." + field, Value: value, Want: want})
	}
	if c.Store == nil {
		bad("Store", nil, "a *model.Store")
	}
	if len(c.Group) > txmq.MaxEventIDBytes {
		bad("Group", fmt.Sprintf("%d bytes", len(c.Group)), fmt.Sprintf("at most %d bytes", txmq.MaxEventIDBytes))
	}
	if c.MaxChecks < 2 {
		bad("MaxChecks", c.MaxChecks, "2 or more: the first check decides nothing for a half without a row")
	}
	if c.Interval < 0 {
		bad("Interval", c.Interval, "more than 0")
	}
	if c.Timeout < 0 {
		bad("Timeout", c.Timeout, "more than 0")
	}
	switch {
	case c.FenceAfter < 0:
		bad("FenceAfter", c.FenceAfter, "more than 0")
	case c.MaxChecks >= 2 && c.Interval > 0 && c.FenceAfter/c.Interval >= time.Duration(c.MaxChecks):
		bad("FenceAfter", c.FenceAfter, fmt.Sprintf("less than %d checks every %v, or the broker discards the half first",
			c.MaxChecks, c.Interval))
	}
	return errors.Join(errs...)
}

// quiet keeps a panic of an observer from turning into an answer or an error.
func quiet(o txmq.Observe, log *slog.Logger) txmq.Observe {
	if o == nil {
		return nil
	}
	return func(ctx context.Context, e txmq.Event) {
		defer func() {
			if cause := recover(); cause != nil {
				log.LogAttrs(ctx, slog.LevelError, "observer panicked", slog.String("panic", fmt.Sprint(cause)))
			}
		}()
		o(ctx, e)
	}
}
