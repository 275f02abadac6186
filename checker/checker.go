package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
)

// maxRunning is how many checks may be under way, those included that hang
// beyond their time-out. With more, check-backs are answered Unknown.
const maxRunning = 64

var (
	errNotReturned = errors.New("check did not return")
	errForeignDB   = errors.New("half of another database")
	errMalformed   = errors.New("topic, attempt, event ID or group is empty or too long")
	errBusy        = fmt.Errorf("%d checks hang", maxRunning)
)

// Checker answers check-backs. Safe for concurrent use.
type Checker struct {
	cfg  Config
	gate gate
}

// New checks the configuration, all bad fields at once, each a
// *txmq.FieldError, and starts nothing.
func New(cfg Config) (*Checker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Checker{cfg: cfg}, nil
}

// Check answers one check-back, by the broker or by whoever found a half, at
// latest after Config.Timeout. It never panics. A Rollback for want of a row
// has made sure that there will be none.
func (c *Checker) Check(ctx context.Context, m *primitive.MessageExt) txmq.Verdict {
	began := time.Now()
	if m == nil {
		return txmq.Unknown
	}
	h := readHalf(m, c.cfg.Group)
	r := c.inTime(ctx, h, m)
	if err := fault.Point(fault.CheckAnswer); err != nil {
		r = unknown(ReasonDatabase, err)
	}
	c.report(ctx, h, r, time.Since(began))
	return r.verdict
}

// Close makes further checks Unknown and waits for those under way, up to ctx;
// its error says that some still run, and use the database. It may be called
// more than once.
func (c *Checker) Close(ctx context.Context) error {
	if err := c.gate.close(ctx); err != nil {
		return &txmq.OpError{Op: "close checker", Err: err}
	}
	return nil
}

// inTime runs answer on a goroutine that Close waits for, because not every
// driver heeds its context, and Foreign gets none.
func (c *Checker) inTime(ctx context.Context, h half, m *primitive.MessageExt) ruling {
	if r, ok := c.enter(); !ok {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	done := make(chan ruling, 1)
	var wg sync.WaitGroup // for its Go; Close does the waiting
	wg.Go(func() {
		defer c.gate.leave()
		r := unknown(ReasonPanic, errNotReturned) // runtime.Goexit
		defer func() {
			if cause := recover(); cause != nil {
				r.err = fmt.Errorf("panic: %v", cause)
				c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "check panicked",
					slog.String("event_id", h.attempt.EventID), slog.String("stack", string(debug.Stack())))
			}
			done <- r
		}()
		r = c.answer(ctx, h, m)
	})
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return unknown(ReasonTimeout, context.Cause(ctx))
	}
}

// answer settles what needs no look into the log, and looks for the rest.
func (c *Checker) answer(ctx context.Context, h half, m *primitive.MessageExt) ruling {
	if err := fault.Point(fault.CheckBefore); err != nil {
		return unknown(ReasonDatabase, err)
	}
	switch {
	case !h.ours && c.cfg.Foreign == nil:
		return unknown(ReasonNotOurs, nil)
	case !h.ours:
		return ruling{verdict: known(c.cfg.Foreign(m)), reason: ReasonForeign}
	}
	if reason, err := h.strange(c.cfg.Store.DatabaseID()); err != nil {
		return unknown(reason, err)
	}
	r := examine(ctx, c.cfg.Store, h.attempt, func(s sight) ruling { return c.decide(h, s) })
	if r.reason == ReasonDatabase && ctx.Err() != nil {
		r.reason = ReasonTimeout
	}
	return r
}

func (c *Checker) enter() (ruling, bool) {
	switch err := c.gate.enter(maxRunning); {
	case err == nil:
		return ruling{}, true
	case errors.Is(err, txmq.ErrClosed):
		return unknown(ReasonClosed, err), false
	default:
		return unknown(ReasonBusy, err), false
	}
}

func (c *Checker) report(ctx context.Context, h half, r ruling, took time.Duration) {
	a := h.attempt
	c.cfg.Observe.Emit(ctx, txmq.Checked{
		Topic: a.Topic, EventID: a.EventID, Attempt: a.ID, Times: h.times,
		Verdict: r.verdict, Fenced: r.fence, Reason: r.reason, Took: took, Err: r.err,
	})
	level, text := slog.LevelDebug, "check-back answered"
	switch {
	case r.fence:
		level, text = slog.LevelInfo, "half message is fenced and rolled back"
	case r.verdict == txmq.Unknown && h.times >= c.cfg.MaxChecks:
		level, text = slog.LevelError, "last check-back answered unknown, the broker discards the half message"
	case r.err != nil:
		level, text = slog.LevelWarn, "check-back answered unknown"
	}
	if !c.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("event_id", a.EventID), slog.String("attempt", a.ID), slog.String("topic", a.Topic),
		slog.String("msg_id", h.msgID), slog.Int("times", h.times),
		slog.String("verdict", r.verdict.String()), slog.String("reason", r.reason),
	}
	if r.err != nil {
		attrs = append(attrs, slog.Any("error", r.err))
	}
	c.cfg.Logger.LogAttrs(ctx, level, text, attrs...) //nolint:sloglint // one of the constants above
}

// known turns a value that is none of the three into Unknown.
func known(v txmq.Verdict) txmq.Verdict {
	if v != txmq.Commit && v != txmq.Rollback {
		return txmq.Unknown
	}
	return v
}
