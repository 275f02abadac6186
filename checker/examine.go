package checker

import (
	"context"
	"errors"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/model"
)

// looks is how often an attempt is looked at when the fence keeps meeting a row
// that the look before did not see.
const looks = 3

// examine looks at the attempt's row, has rule judge it, and fences if it says
// so. A verdict that asks for a fence is returned only once that is committed.
func examine(ctx context.Context, store *model.Store, a model.Attempt, rule func(sight) ruling) ruling {
	for range looks {
		r, settled, err := look(ctx, store, a, rule)
		switch {
		case errors.Is(err, model.ErrLocked):
			return unknown(ReasonLocked, nil)
		case err != nil:
			return unknown(ReasonDatabase, err)
		case settled:
			return r
		}
	}
	return unknown(ReasonLocked, nil)
}

// look is one round, in a transaction of its own: on the primary, and at READ
// COMMITTED, so that the watermark is read after the row was missed. (The purge
// moves it before it deletes.) settled is false where the fence met a row.
func look(ctx context.Context, store *model.Store, a model.Attempt, rule func(sight) ruling) (r ruling, settled bool, err error) {
	tx, err := store.BeginReadCommitted(ctx)
	if err != nil {
		return ruling{}, false, err
	}
	defer tx.Rollback()

	var s sight
	s.entry, s.err = tx.Look(ctx, a.ID)
	if errors.Is(s.err, txmq.ErrNotFound) {
		if s.now, s.purgedBefore, err = tx.LogHorizon(ctx); err != nil {
			return ruling{}, false, err
		}
	}
	if r = rule(s); !r.fence {
		return r, true, nil
	}

	fresh, err := tx.Fence(ctx, a)
	if err != nil || !fresh {
		return ruling{}, false, err
	}
	if err := fault.Point(fault.CheckAfterFence); err != nil {
		return ruling{}, false, err
	}
	// An error here, an unknown outcome included, must not become Rollback.
	return r, true, tx.Commit(ctx)
}
