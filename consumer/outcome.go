package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// done is the end of a delivery whose transaction has committed.
func (r *run) done(stop context.Context) ending {
	r.afterCommit(stop)
	end := ack(txmq.OutcomeDone)
	if err := fault.Point(fault.ConsumeAfterCommit); err != nil {
		end = later(txmq.OutcomeDone, soon, err) // as if the acknowledgement were lost
	}
	end.ran = true
	return end
}

// afterCommit runs what the handler left for after the COMMIT.
func (r *run) afterCommit(stop context.Context) {
	if r.d == nil || len(r.d.after) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(stop, r.c.cfg.Deadline)
	defer cancel()
	for _, f := range r.d.after {
		r.quietly(ctx, f)
	}
}

// quietly keeps a panic of f from turning the outcome, which stands.
func (r *run) quietly(ctx context.Context, f func(context.Context)) {
	defer func() {
		if v := recover(); v != nil {
			r.c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "function after the commit panicked",
				slog.String("consumer", r.h.Name), slog.String("event_id", r.arrival.EventID),
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
		}
	}()
	f(ctx)
}

// failed decides what an error of a run means: for the record, and from it for
// the broker. The transaction is rolled back, or its outcome is unknown.
func (r *run) failed(ctx, stop context.Context, err error) ending {
	cause, kind := context.Cause(ctx), kindOf(err)
	var end ending
	switch {
	case kind == uncertain, kind == moved, errors.Is(cause, txmq.ErrLeaseLost):
		end = r.asRecorded(stop, err)
	case stop.Err() != nil:
		end = r.uncounted(stop, fmt.Errorf("stopped: %w", err))
	case kind == passing, errors.Is(cause, errNotBegun):
		end = r.uncounted(stop, err)
	case errors.Is(cause, errDeadline) && !errors.Is(err, errDeadline):
		end = r.counted(stop, fmt.Errorf("%w (%v): %w", errDeadline, r.c.cfg.Deadline, err))
	case IsSkip(err):
		end = r.skipped(stop, err)
	default:
		end = r.counted(stop, err)
	}
	end.ran = true
	return end
}

// skipped records SUCCESS with the reason, in a transaction without the
// handler's work.
func (r *run) skipped(ctx context.Context, why error) ending {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	r.d.after = nil // there is no work for it to follow
	err := r.recordSkip(ctx, why)
	switch {
	case err == nil:
		return ack(txmq.OutcomeSkipped)
	case errors.Is(err, txmq.ErrOutcomeUnknown), errors.Is(err, txmq.ErrLeaseLost):
		return r.asRecorded(ctx, r.ours(err))
	default:
		return r.uncounted(ctx, errors.Join(why, err))
	}
}

func (r *run) recordSkip(ctx context.Context, why error) error {
	tx, err := r.h.Store.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if r.claims {
		err = tx.Succeed(ctx, r.held())
	} else {
		var again model.Claimed
		again, err = tx.Apply(ctx, r.arrival, r.c.cfg.ClaimWait)
		if err == nil && again.Decision != model.Run {
			err = txmq.ErrLeaseLost // another was quicker
		}
	}
	if err != nil {
		return err
	}
	if err := tx.Note(ctx, r.arrival.EventID, r.arrival.Consumer, why); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// counted writes the failed attempt: FAIL, or DEAD at the last one.
func (r *run) counted(ctx context.Context, why error) ending {
	attempt := r.claimed.RetryCnt + 1
	if IsPermanent(why) || attempt >= r.c.cfg.MaxAttempts {
		return r.giveUp(ctx, why)
	}
	f := r.failure(why)
	wait := r.c.cfg.Backoff.after(attempt)
	// The broker comes up to an hour later than it is asked to: a job that went by
	// what was asked would send a copy beside the broker's.
	f.Dead, f.RetryIn = false, rocketmq.Delay(wait)
	return r.write(ctx, f, later(txmq.OutcomeRetry, wait, why))
}

// giveUp writes DEAD and sends the message to the dead-letter queue.
func (r *run) giveUp(ctx context.Context, why error) ending {
	return r.write(ctx, r.failure(why), deadLetter(why))
}

func (r *run) write(ctx context.Context, f model.Failure, end ending) ending {
	if err := fault.Point(fault.ConsumeBeforeFail); err != nil {
		return later(txmq.OutcomeRetry, soon, errors.Join(end.err, err))
	}
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	if r.claims {
		f.Owner = r.c.owner
	}
	switch err := r.h.Store.Fail(ctx, f); {
	case errors.Is(err, txmq.ErrLeaseLost):
		r.db.beats.lost(ctx, r.beat)
		return r.asRecorded(ctx, end.err)
	case err != nil: // the database is away: what it does not know the broker is not told
		return later(txmq.OutcomeRetry, soon, errors.Join(end.err, err))
	}
	if err := fault.Point(fault.ConsumeAfterFail); err != nil {
		return later(txmq.OutcomeRetry, soon, errors.Join(end.err, err))
	}
	return recorded(end, r.claimed.Redriven)
}

// recorded is the end of a delivery whose FAIL is written. Where a job redrives
// the event it brings the next copy, and this one is acknowledged: sent back,
// there would be one more with each interval.
func recorded(end ending, redriven bool) ending {
	if redriven && end.result.Kind == rocketmq.Retry {
		end.result = rocketmq.Result{Kind: rocketmq.Ack}
	}
	return end
}

// uncounted leaves the event its attempts: the cause is not the event's.
func (r *run) uncounted(ctx context.Context, why error) ending {
	end := later(txmq.OutcomeRetry, soon, why)
	if !r.claims {
		return end // the rollback left no trace
	}
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	switch err := r.h.Store.Release(ctx, r.held(), why); {
	case errors.Is(err, txmq.ErrLeaseLost):
		return r.asRecorded(ctx, why)
	case err != nil:
		end.err = errors.Join(why, err) // its lease will end by itself
		r.c.debts.owe(eventKey{r.arrival.Consumer, r.arrival.EventID}, r.claimed.Version)
		return end
	}
	return recorded(end, r.claimed.Redriven)
}

// asRecorded reads the row in a fresh transaction, and does as it says.
func (r *run) asRecorded(ctx context.Context, why error) ending {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	rec, err := r.h.Store.Find(ctx, r.arrival.EventID, r.arrival.Consumer)
	switch {
	case err != nil:
		return later(txmq.OutcomeRetry, soon, errors.Join(why, err))
	case rec.Status == model.Success && kindOf(why) == uncertain && rec.Version == r.version():
		// In Atomic mode it may still be that of another worker, who claimed what
		// this one had seen: the record says no more.
		r.afterCommit(ctx)
		return ack(txmq.OutcomeDone) // the COMMIT whose answer was lost had happened
	case rec.Status == model.Success:
		return ack(txmq.OutcomeDuplicate)
	case rec.Status == model.Dead:
		return ack(txmq.OutcomeDead)
	case rec.Status == model.Processing && rec.Owner == r.c.owner && rec.Version == r.version() && !r.claims && r.c.cfg.Strict:
		r.claims, r.claimed.Version = true, rec.Version
		return r.counted(ctx, why) // the handler has committed by itself
	case rec.Status == model.Processing && rec.Owner == r.c.owner && rec.Version == r.version():
		return r.uncounted(ctx, why) // the COMMIT did not happen, or has not yet, and then this waits for it
	default:
		end := later(txmq.OutcomeRetry, max(rec.Rest, soon), why)
		return recorded(end, rec.Status == model.Fail && rec.Redriven())
	}
}
