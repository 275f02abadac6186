// Package localtx is the local transaction beside a half message, from BEGIN to
// what the broker may be told: the same for txmq's producer and for the listener
// of a raw client.
//
// Invariants:
//   - Commit is said only of a transaction whose COMMIT succeeded, or whose row
//     was found after it.
//   - Rollback is said only when COMMIT was not sent, or a fence has made sure of
//     it.
package localtx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/model"
)

const (
	// BeginTries is how often a transaction is begun whose first statement, the
	// log row, met a deadlock. Nothing is lost by that.
	BeginTries = 3

	// SettleLimit is how long a call stays to learn what became of a COMMIT
	// without an answer, whatever the caller's context says.
	SettleLimit = 5 * time.Second

	settlePause = 200 * time.Millisecond // between two looks
)

// ErrNotReturned is for a function that ended its goroutine (runtime.Goexit).
var ErrNotReturned = errors.New("local function did not return")

// Call is one local transaction. It is used once.
type Call struct {
	Store   *model.Store
	Attempt model.Attempt
	Fn      func(tx *gorm.DB) error

	// Resolve is checker.Resolve, which stands above this package.
	Resolve func(context.Context, *model.Store, model.Attempt) (txmq.Verdict, error)

	// Settle bounds the looks after a COMMIT without an answer.
	Settle time.Duration

	// Committing is set once COMMIT may have been sent.
	Committing *bool

	Logger *slog.Logger
}

// insideKey marks the context of a local transaction.
type insideKey struct{}

// Inside tells whether ctx is that of a local transaction on store.
func Inside(ctx context.Context, store *model.Store) bool { return ctx.Value(insideKey{}) == store }

// Run begins, writes the log row, calls Fn and commits. A panic of Fn is logged
// with its stack, rolled back, and returned beside its error. A panic once
// COMMIT may be sent (a driver's) says nothing of the outcome: Unknown. If Fn
// ends the goroutine, the transaction is rolled back and Run does not return.
func (c Call) Run(ctx context.Context) (v txmq.Verdict, panicked any, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		c.Logger.LogAttrs(ctx, slog.LevelError, "local transaction panicked", // a panic that goes on shows another stack
			append(c.attrs(), slog.String("stack", string(debug.Stack())))...)
		err = fmt.Errorf("local transaction panicked: %v", cause)
		if *c.Committing {
			v, err = txmq.Unknown, c.outcomeUnknown(err)
			return
		}
		v, panicked = txmq.Rollback, cause
	}()
	v, err = c.transact(context.WithValue(ctx, insideKey{}, c.Store))
	return v, nil, err
}

// transact is the local transaction. Unless COMMIT was sent, leaving it means
// that it will never be: Rollback is certain.
func (c Call) transact(ctx context.Context) (txmq.Verdict, error) {
	if err := fault.Point(fault.SendAfterHalf); err != nil {
		return txmq.Rollback, err
	}
	tx, err := c.begin(ctx)
	if err != nil {
		return txmq.Rollback, because(ctx, err)
	}
	defer tx.Rollback()
	if err := fault.Point(fault.SendAfterLog); err != nil {
		return txmq.Rollback, err
	}
	if err := c.Fn(tx.DB()); err != nil {
		return txmq.Rollback, because(ctx, err)
	}
	if err := fault.Point(fault.SendBeforeCommit); err != nil {
		return txmq.Rollback, err
	}
	*c.Committing = true
	switch err := tx.Commit(ctx); {
	case err == nil:
		return txmq.Commit, nil
	case errors.Is(err, txmq.ErrOutcomeUnknown):
		return c.settle(ctx, err)
	default:
		return txmq.Rollback, because(ctx, err)
	}
}

// because names the context's end where database/sql only tells of its
// consequence.
func because(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, sql.ErrTxDone) || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// begin writes the log row as the transaction's first statement.
func (c Call) begin(ctx context.Context) (*model.Tx, error) {
	for try := 1; ; try++ {
		tx, err := c.Store.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if err = tx.Log(ctx, c.Attempt, model.RouteHalf); err == nil {
			return tx, nil
		}
		tx.Rollback()
		if try == BeginTries || !c.Store.Deadlock(err) {
			return nil, err
		}
	}
}

// settle finds out what became of a COMMIT without an answer, by the attempt,
// and fences it where there is no row.
func (c Call) settle(ctx context.Context, lost error) (txmq.Verdict, error) {
	c.Logger.LogAttrs(ctx, slog.LevelWarn, "commit was not answered, looking for its row",
		append(c.attrs(), slog.Any("error", lost))...)
	ctx, settled := context.WithTimeout(context.WithoutCancel(ctx), c.Settle)
	defer settled()
	var v txmq.Verdict
	look := loop.Loop{Interval: settlePause, Step: func(ctx context.Context) (bool, error) {
		found, err := c.Resolve(ctx, c.Store, c.Attempt)
		if v = found; err == nil {
			settled()
		}
		return false, err
	}}
	_ = look.Run(ctx) // is always nil; the last step's error says no more than lost does
	cause := causeOf(lost)
	switch v {
	case txmq.Commit:
		return txmq.Commit, nil
	case txmq.Rollback:
		return txmq.Rollback, fmt.Errorf("%w: commit failed: %w", txmq.ErrTxBroken, cause)
	default:
		return txmq.Unknown, c.outcomeUnknown(cause)
	}
}

func (c Call) outcomeUnknown(cause error) error {
	return &txmq.OutcomeUnknownError{Topic: c.Attempt.Topic, EventID: c.Attempt.EventID, Attempt: c.Attempt.ID, Err: cause}
}

func (c Call) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("event_id", c.Attempt.EventID), slog.String("attempt", c.Attempt.ID), slog.String("topic", c.Attempt.Topic),
	}
}

// causeOf is err without the mark txmq.ErrOutcomeUnknown, which would be a lie
// once the outcome is known.
func causeOf(err error) error {
	many, ok := err.(interface{ Unwrap() []error }) // the wrapping of model.Tx.Commit
	if !ok {
		return err
	}
	var rest []error
	for _, e := range many.Unwrap() {
		if !errors.Is(e, txmq.ErrOutcomeUnknown) {
			rest = append(rest, e)
		}
	}
	return errors.Join(rest...)
}
