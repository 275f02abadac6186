package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/model"
)

// Redrive has one FAIL record run again now, without waiting for compensate's
// tick: what a person has just retried (model.Store.Retry), or what is past its
// next_retry_at. It returns the way that it went, and how that failed, if it
// did. No way and no error: it was not due, or somebody else was quicker. Beside the job
// and other calls, one of them delivers.
//
// txmq.ErrNotFound: no such record. A *txmq.FieldError: the record has no way,
// and which field of Config would give it one. Where neither broker nor row has
// the message any more, the error says so, and the record stays FAIL and due:
// another runner's Compensator may do without, and a job without one makes it
// DEAD.
func (r *Runner) Redrive(ctx context.Context, eventID, handler string) (txmq.RedriveWay, error) {
	way, err := r.redrive(ctx, eventID, handler)
	var op *txmq.OpError
	if err != nil && !errors.As(err, &op) {
		err = &txmq.OpError{Op: "redrive", EventID: eventID, Err: err}
	}
	return way, err
}

func (r *Runner) redrive(ctx context.Context, eventID, handler string) (txmq.RedriveWay, error) {
	rec, err := r.cfg.Store.Find(ctx, eventID, handler)
	if err != nil {
		return "", err
	}
	if rec.Status != model.Fail {
		return "", fmt.Errorf("the record is %s, and only FAIL can be redriven: retry it first if it is DEAD", rec.Status)
	}
	d := newRedrive(r.cfg, r.link(), r.owner)
	d.byHand = true
	defer d.broker.Close()
	if err := d.homeless(rec); err != nil {
		return "", err
	}
	won, err := r.cfg.Store.Redrive(ctx, rec, 0, d.pause(rec))
	if err != nil || !won {
		return "", err
	}
	f, err := d.take(ctx, rec)
	if err == nil {
		err = f.err
	}
	return f.way, err
}

// leave is bury for a redrive by hand: this runner may know less than the one
// that has the handler's Compensator.
func (d *redrive) leave(ctx context.Context, r model.ConsumeRecord, f fate) (fate, error) {
	if f.way == txmq.RedriveSendBack {
		f.err = fmt.Errorf("%w, and the row keeps no copy of it: only a Compensator can run it", f.err)
	}
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	_, err := d.Store.Postpone(ctx, r, -d.Compensate.Stale) // due at once
	return f, err
}
