package consumer

import (
	"context"

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
	if err := r.h.Store.Release(ctx, r.held(), errTurn); err != nil {
		return nil, err
	}
	if done, err = r.c.keys.take(ctx, takenOver, hold); err != nil {
		return nil, err
	}
	if err = r.claim(ctx); err != nil || r.claimed.Decision != model.Run {
		done()
		return nil, err
	}
	r.claimed.TookOver = true
	return done, nil
}
