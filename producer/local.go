package producer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

const (
	// beginTries is how often a transaction is begun whose first statement, the
	// log row, met a deadlock. Nothing is lost by that.
	beginTries = 3

	// settleLimit is how long a call stays to learn what became of a COMMIT
	// without an answer, whatever the caller's context says; settlePause lies
	// between two looks.
	settleLimit = 5 * time.Second
	settlePause = 200 * time.Millisecond
)

var errNotReturned = errors.New("local function did not return")

// local is called, on the caller's goroutine, when the half is stored. It
// returns what to tell the broker. If fn ends the goroutine (runtime.Goexit),
// the transaction is rolled back, and the broker is told Unknown.
func (s *send) local(ctx context.Context, h rocketmq.Half) txmq.Verdict {
	s.ran, s.msgID = true, h.MsgID
	s.halfSent(ctx)
	s.err = errNotReturned
	s.known, s.err = s.guarded(ctx)
	s.told = s.known
	if s.known != txmq.Commit {
		return s.told
	}
	if err := fault.Point(fault.SendAfterCommit); err != nil {
		s.told = txmq.Unknown // an end-transaction that is lost
	}
	return s.told
}

// guarded turns a panic of fn into a rollback, and keeps it for the caller. A
// panic once COMMIT may be sent (a driver's) says nothing of the outcome.
func (s *send) guarded(ctx context.Context) (v txmq.Verdict, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		s.p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "local transaction panicked", // the panic that goes on shows another stack
			append(s.attrs(), slog.String("stack", string(debug.Stack())))...)
		err = fmt.Errorf("local transaction panicked: %v", cause)
		if s.committing {
			v, err = txmq.Unknown, s.outcomeUnknown(err)
			return
		}
		v, s.panicked = txmq.Rollback, cause
	}()
	return s.transact(context.WithValue(ctx, insideKey{}, s.p.cfg.Store))
}

// transact is the local transaction. Unless COMMIT was sent, leaving it means
// that it will never be: Rollback is certain.
func (s *send) transact(ctx context.Context) (txmq.Verdict, error) {
	if err := fault.Point(fault.SendAfterHalf); err != nil {
		return txmq.Rollback, err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return txmq.Rollback, because(ctx, err)
	}
	defer tx.Rollback()
	if err := fault.Point(fault.SendAfterLog); err != nil {
		return txmq.Rollback, err
	}
	if err := s.fn(tx.DB()); err != nil {
		return txmq.Rollback, because(ctx, err)
	}
	if err := fault.Point(fault.SendBeforeCommit); err != nil {
		return txmq.Rollback, err
	}
	s.committing = true
	switch err := tx.Commit(ctx); {
	case err == nil:
		return txmq.Commit, nil
	case errors.Is(err, txmq.ErrOutcomeUnknown):
		return s.settle(ctx, err)
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
func (s *send) begin(ctx context.Context) (*model.Tx, error) {
	for try := 1; ; try++ {
		tx, err := s.p.cfg.Store.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if err = tx.Log(ctx, s.attempt, model.RouteHalf); err == nil {
			return tx, nil
		}
		tx.Rollback()
		if try == beginTries || !s.p.cfg.Store.Deadlock(err) {
			return nil, err
		}
	}
}

// settle finds out what became of a COMMIT without an answer, by the attempt,
// and fences it where there is no row.
func (s *send) settle(ctx context.Context, lost error) (txmq.Verdict, error) {
	s.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "commit was not answered, looking for its row",
		append(s.attrs(), slog.Any("error", lost))...)
	ctx, settled := context.WithTimeout(context.WithoutCancel(ctx), s.p.settleLimit)
	defer settled()
	var v txmq.Verdict
	look := loop.Loop{Interval: settlePause, Step: func(ctx context.Context) (bool, error) {
		found, err := checker.Resolve(ctx, s.p.cfg.Store, s.attempt)
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
		return txmq.Unknown, s.outcomeUnknown(cause)
	}
}

func (s *send) outcomeUnknown(cause error) error {
	return &txmq.OutcomeUnknownError{Topic: s.attempt.Topic, EventID: s.attempt.EventID, Attempt: s.attempt.ID, Err: cause}
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
