package consumer

import (
	"context"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/model"
)

// deadlockTries bounds how often a transaction whose first statement met a
// deadlock begins again. Nothing of the handler's is in it yet.
const deadlockTries = 5

// atomic is protocol A: claim, handler and success in one transaction.
func (r *run) atomic(ctx, stop context.Context) ending {
	var tx *model.Tx
	err := r.waited(ctx, func(ctx context.Context) (err error) {
		tx, err = r.apply(ctx)
		return err
	})
	if err != nil || r.claimed.Decision != model.Run {
		return r.unclaimed(stop, err)
	}
	defer tx.Rollback()
	if r.claimed.Lost {
		tx.Rollback()
		r.claims = true // its worker died, and no Apply would count that: protocol K
		return r.tracked(ctx, stop)
	}
	if err := r.work(ctx, tx); err != nil {
		tx.Rollback() // before the failure is written: the row is locked until then
		return r.failed(ctx, stop, err)
	}
	return r.done(stop)
}

// apply begins and claims. The transaction is open only when the decision is
// to run.
func (r *run) apply(ctx context.Context) (*model.Tx, error) {
	store := r.h.Store
	for try := 1; ; try++ {
		tx, err := store.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if r.c.cfg.Strict {
			r.claimed, _, err = tx.ApplyStrict(ctx, r.arrival, r.c.owner, r.c.cfg.Lease, r.c.cfg.ClaimWait) // held says the same
		} else {
			r.claimed, err = tx.Apply(ctx, r.arrival, r.c.cfg.ClaimWait)
		}
		if err == nil && r.claimed.Decision == model.Run {
			return tx, nil
		}
		tx.Rollback()
		if err == nil || !store.Deadlock(err) || try == deadlockTries {
			return nil, err
		}
	}
}

// work runs the handler and commits. Any error means rolled back, but for
// txmq.ErrOutcomeUnknown.
func (r *run) work(ctx context.Context, tx *model.Tx) error {
	if err := fault.Point(fault.ConsumeAfterApply); err != nil {
		return err
	}
	if err := r.call(ctx, tx); err != nil {
		return err
	}
	if err := fault.Point(fault.ConsumeAfterHandler); err != nil {
		return err
	}
	if r.c.cfg.Strict {
		return r.succeed(ctx, tx)
	}
	return r.ours(tx.Commit(ctx))
}
