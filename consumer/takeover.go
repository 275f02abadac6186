package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/model"
)

// takenOver is the key of the turn that the events share whose worker died. No
// event is nameless.
var takenOver = eventKey{}

// alone has them run one at a time in this process. One of them may be what
// killed their worker, and they come back together, at the end of the leases it
// left: at its next death it shall not take the others along, and spend their
// attempts. Who waits lets go of its record meanwhile. Without an error and with
// the decision to run, the turn is the delivery's until done.
func (r *run) alone(ctx context.Context) (done func(), err error) {
	hold := 2*r.c.cfg.Deadline + grace
	if done = r.c.keys.try(takenOver, hold); done != nil {
		return done, nil
	}
	lost := r.claimed.LostOwner
	if err := r.h.Store.ReleaseLost(ctx, r.held(), lost, errTurn); err != nil {
		return nil, err
	}
	if done, err = r.c.keys.take(ctx, takenOver, hold); err != nil {
		return nil, err
	}
	if err = r.claim(ctx); err != nil || r.claimed.Decision != model.Run {
		done()
		return nil, err
	}
	r.claimed.TookOver = r.claimed.Lost
	return done, nil
}

// debts are the releases that the database was not there for: the run ended
// through no fault of the event, and its record is still ours until its lease is
// over. Whoever takes it over from ourselves then does not count it.
type debts struct {
	mu   sync.Mutex
	owed map[eventKey]debt
}

type debt struct {
	version int64
	since   time.Time
}

// debtKept is how long a debt is remembered; others may have paid it.
const debtKept = time.Hour

func (d *debts) owe(key eventKey, version int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed == nil {
		d.owed = map[eventKey]debt{}
	}
	for k, old := range d.owed {
		if time.Since(old.since) > debtKept {
			delete(d.owed, k)
		}
	}
	d.owed[key] = debt{version, time.Now()}
}

// pay says whether the claim that gave version took over what is owed.
func (d *debts) pay(key eventKey, version int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, ok := d.owed[key]
	delete(d.owed, key)
	// The sweep may have come between; 0: the claim had no answer.
	return ok && (old.version == 0 || old.version == version-1 || old.version == version-2)
}

// unhold gives a record back that a claim without an answer may have made ours:
// nobody works on it, so it shall not look as if its worker had died. The key's
// turn is ours, so no other delivery of this process holds it.
func (r *run) unhold(ctx context.Context, why error) {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	key := eventKey{r.arrival.Consumer, r.arrival.EventID}
	rec, err := r.h.Store.Find(ctx, r.arrival.EventID, r.arrival.Consumer)
	switch {
	case errors.Is(err, txmq.ErrNotFound):
		return
	case err != nil:
		r.c.debts.owe(key, 0)
		return
	case rec.Status != model.Processing || rec.Owner != r.c.owner:
		return
	}
	held := model.Held{EventID: rec.EventID, Consumer: rec.Consumer, Owner: rec.Owner, Version: rec.Version}
	err = r.h.Store.ReleaseLost(ctx, held, r.claimed.LostOwner, why)
	if err != nil && !errors.Is(err, txmq.ErrLeaseLost) {
		r.c.debts.owe(key, rec.Version)
	}
}

// forgive takes the run that ended with the database away back out of the count.
func (r *run) forgive() {
	if !r.claimed.Lost || r.claimed.LostOwner != r.c.owner {
		return
	}
	if r.c.debts.pay(eventKey{r.arrival.Consumer, r.arrival.EventID}, r.claimed.Version) {
		r.claimed.RetryCnt--
		r.claimed.Lost = false
	}
}
