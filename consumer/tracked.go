package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/model"
)

// tracked is protocols B and E: claim in a transaction of its own, heartbeat,
// then handler and guarded success, in one transaction or without.
func (r *run) tracked(ctx, stop context.Context) ending {
	if err := r.waited(ctx, r.claim); err != nil || r.claimed.Decision != model.Run {
		return r.unclaimed(stop, err)
	}
	if err := fault.Point(fault.ConsumeAfterClaim); err != nil {
		return r.failed(ctx, stop, err)
	}
	r.forgive()
	if r.claimed.Lost && r.claimed.RetryCnt >= r.c.cfg.MaxAttempts {
		return r.giveUp(stop, errUsedUp) // not after a Retry, which has lost no worker
	}
	if r.claimed.Lost {
		done, err := r.alone(ctx)
		if err != nil || r.claimed.Decision != model.Run {
			return r.unclaimed(stop, err)
		}
		defer done()
	}
	ctx, beat, end := r.db.beats.hold(ctx, r.held())
	r.beat = beat
	defer end()
	work := r.workTracked
	if r.h.Do.mode == modeExternal {
		work = r.workExternal
	}
	if err := work(ctx); err != nil {
		return r.failed(ctx, stop, err)
	}
	return r.done(stop)
}

func (r *run) claim(ctx context.Context) (err error) {
	r.claimed, err = r.h.Store.Claim(ctx, r.arrival, r.c.owner, r.c.cfg.Lease, r.c.cfg.ClaimWait)
	return err
}

func (r *run) held() model.Held {
	return model.Held{
		EventID: r.arrival.EventID, Consumer: r.arrival.Consumer, Owner: r.c.owner, Version: r.version(),
	}
}

func (r *run) workTracked(ctx context.Context) error {
	tx, err := r.h.Store.Begin(ctx)
	if err != nil {
		return &troubled{passing, err} // no connection within the deadline is not the event's doing either
	}
	defer tx.Rollback()
	if err := r.call(ctx, tx); err != nil {
		return err
	}
	if err := fault.Point(fault.ConsumeAfterHandler); err != nil {
		return err
	}
	return r.succeed(ctx, tx)
}

// workExternal is protocol E: the handler without a transaction, then the mark.
func (r *run) workExternal(ctx context.Context) error {
	if err := r.call(ctx, nil); err != nil {
		return err
	}
	if err := fault.Point(fault.ConsumeAfterHandler); err != nil {
		return err
	}
	ctx, cancel := handling.Settle(ctx) // the effect is out: its mark is not the deadline's to cut off
	defer cancel()
	tx, err := r.h.Store.Begin(ctx)
	if err != nil {
		return &troubled{passing, err}
	}
	defer tx.Rollback()
	return r.succeed(ctx, tx)
}

// succeed marks and commits. Succeed closes the handler's part first, so nothing
// of it comes between the two, and nothing is marked in a broken transaction.
func (r *run) succeed(ctx context.Context, tx *model.Tx) error {
	if err := tx.Succeed(ctx, r.held()); err != nil {
		if errors.Is(err, txmq.ErrLeaseLost) && !r.claims { // Strict: nobody else could have moved it
			return fmt.Errorf("%w: its record is gone: %w", txmq.ErrTxMisused, err)
		}
		if errors.Is(err, txmq.ErrLeaseLost) {
			r.db.beats.lost(ctx, r.beat)
		}
		return r.ours(err)
	}
	return r.ours(tx.Commit(ctx))
}
