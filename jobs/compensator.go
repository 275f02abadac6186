package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/model"
)

const (
	// claimGrace is what a Compensator's lease outlasts its deadline: time to
	// commit, or to write the failure.
	claimGrace = 30 * time.Second
	// claimWait is for a delivery's open transaction on the row.
	claimWait = time.Second
)

var (
	errDeadline = errors.New("the Compensator's deadline is over")
	errGoexit   = errors.New("the Compensator ended its goroutine without returning")
	errUsedUp   = errors.New("attempts are used up: the workers of earlier runs died")
)

// compensation is a Compensator at work on one record, under a lease.
type compensation struct {
	*redrive
	r    model.ConsumeRecord // as claimed
	fn   Compensator
	idle time.Duration // before the claim
	died bool          // its last worker ended without a word
}

// finish has the row's Compensator work on it. A delivery that has claimed it
// first is left to itself.
func (d *redrive) finish(ctx context.Context, r model.ConsumeRecord, fn Compensator) (fate, error) {
	claimed, err := d.Store.Claim(ctx, r.Arrival(), d.owner, d.Compensate.Deadline+claimGrace, claimWait)
	if err != nil || claimed.Decision != model.Run {
		return fate{}, err
	}
	w := &compensation{redrive: d, r: r, fn: fn, idle: r.Idle, died: claimed.Lost}
	w.r.Status, w.r.Owner, w.r.Version, w.r.RetryCnt = model.Processing, d.owner, claimed.Version, claimed.RetryCnt
	w.r.LeaseUntil, w.r.NextRetryAt = model.Time{}, model.Time{}
	f, err := w.run(ctx)
	f.way = txmq.RedriveCompensator
	return f, err
}

func (w *compensation) held() model.Held {
	return model.Held{EventID: w.r.EventID, Consumer: w.r.Consumer, Owner: w.r.Owner, Version: w.r.Version}
}

func (w *compensation) run(ctx context.Context) (fate, error) {
	limit := w.Compensate.MaxAttempts
	if w.died && w.r.RetryCnt >= limit {
		return w.fail(ctx, errUsedUp, true)
	}
	said, err := w.work(ctx)
	switch {
	case said == nil && err == nil:
		return fate{}, nil
	case errors.Is(err, txmq.ErrOutcomeUnknown), errors.Is(err, txmq.ErrLeaseLost):
		return w.asRecorded(ctx, err)
	case err != nil || ctx.Err() != nil:
		return w.release(ctx, errors.Join(err, said))
	case consumer.IsSkip(said):
		return w.skip(ctx, said)
	default:
		return w.fail(ctx, said, consumer.IsPermanent(said) || w.r.RetryCnt+1 >= limit)
	}
}

// work runs the function and the guarded Succeed in one transaction. said is
// what counts as an attempt: what the function returned, or did to its
// transaction. err is everything else.
func (w *compensation) work(ctx context.Context) (said, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Compensate.Deadline, fmt.Errorf("%w (%v)", errDeadline, w.Compensate.Deadline))
	defer cancel()
	tx, err := w.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if said = w.call(ctx, tx); said != nil {
		if why := tx.Err(); w.passing(why) {
			return said, why
		}
		return said, nil
	}
	if err = tx.Succeed(ctx, w.held()); err == nil {
		err = tx.Commit(ctx)
	}
	if err == nil || w.passing(err) || errors.Is(err, txmq.ErrOutcomeUnknown) || errors.Is(err, txmq.ErrLeaseLost) {
		return nil, err
	}
	return err, nil
}

// passing: the server broke the transaction, which is nobody's fault. A time
// limit that the function ran out of is its own.
func (w *compensation) passing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.Is(err, txmq.ErrTxBroken) || w.Store.Transient(err)
}

// call runs the function, and returns when that has.
func (w *compensation) call(ctx context.Context, tx *model.Tx) error {
	err := handling.Call(nil, func() error { return w.fn(ctx, tx.DB().WithContext(ctx), w.r) }, errGoexit, panicked)
	if err != nil && ctx.Err() != nil {
		return because(context.Cause(ctx), err)
	}
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx) // it took no notice of the end
	}
	return err
}

func panicked(v any, stack []byte) error { return &consumer.PanicError{Value: v, Stack: stack} }

// skip records SUCCESS with the reason, without the function's work.
func (w *compensation) skip(ctx context.Context, why error) (fate, error) {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	tx, err := w.Store.Begin(ctx)
	if err != nil {
		return w.release(ctx, errors.Join(err, why))
	}
	defer tx.Rollback()
	if err = tx.Succeed(ctx, w.held()); err == nil {
		err = tx.Note(ctx, w.r.EventID, w.r.Consumer, why)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return w.asRecorded(ctx, err)
	}
	return fate{}, nil
}

// fail writes the attempt.
func (w *compensation) fail(ctx context.Context, why error, dead bool) (fate, error) {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	idle := w.r
	idle.Idle = w.idle
	err := w.Store.Fail(ctx, model.Failure{
		Arrival: w.r.Arrival(), Owner: w.r.Owner, Version: w.r.Version, RetryCnt: w.r.RetryCnt,
		Dead: dead, RetryIn: w.pause(idle), Err: why,
	})
	if errors.Is(err, txmq.ErrLeaseLost) {
		return w.lost(ctx, why)
	}
	return fate{dead: dead && err == nil, err: why}, err
}

// release gives the attempt back: the event is not to blame.
func (w *compensation) release(ctx context.Context, why error) (fate, error) {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	err := w.Store.Release(ctx, w.held(), why)
	if !errors.Is(err, txmq.ErrLeaseLost) {
		return fate{err: why}, err
	}
	// A COMMIT that was late may have been what Release waited for.
	rec, err := w.Store.Find(ctx, w.r.EventID, w.r.Consumer)
	if err == nil && rec.Status == model.Success && rec.Version == w.r.Version {
		return fate{}, nil
	}
	return w.lost(ctx, why)
}

// asRecorded reads the row in a fresh transaction, where it is not known whether
// the COMMIT happened.
func (w *compensation) asRecorded(ctx context.Context, why error) (fate, error) {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	rec, err := w.Store.Find(ctx, w.r.EventID, w.r.Consumer)
	switch {
	case err != nil:
		return fate{err: why}, err
	case rec.Owner == w.r.Owner && rec.Version == w.r.Version:
		return w.release(ctx, why) // it did not, or has not yet, and then this waits for it
	case rec.Status == model.Success && rec.Version == w.r.Version:
		return fate{}, nil
	default:
		return w.lost(ctx, why)
	}
}

func (w *compensation) lost(ctx context.Context, why error) (fate, error) {
	w.Observe.Emit(ctx, txmq.LeaseLost{Consumer: w.r.Consumer, EventID: w.r.EventID})
	return fate{err: why}, nil
}
