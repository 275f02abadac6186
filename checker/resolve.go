package checker

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// Resolve says what became of an attempt whose COMMIT got no answer: Commit, or
// Rollback after a fence has made sure of it. So it is for attempts whose local
// function is over. Unknown comes with an error: the database is away, or the
// transaction is still open there (model.ErrLocked; call again), or the log of
// that time was purged. It tells the broker nothing; the check-back does.
func Resolve(ctx context.Context, store *model.Store, a model.Attempt) (txmq.Verdict, error) {
	if store == nil {
		return txmq.Unknown, &txmq.OpError{Op: "resolve", EventID: a.EventID, Err: &txmq.FieldError{
			Field: "checker.Resolve store", Want: "a *model.Store",
		}}
	}
	r := examine(ctx, store, a, func(s sight) ruling {
		switch {
		case s.err == nil:
			return ofEntry(a, s.entry)
		case !errors.Is(s.err, txmq.ErrNotFound):
			return unknown(ReasonDatabase, s.err)
		case !s.purgedBefore.IsZero() && bornOf(a.ID).Before(s.purgedBefore.Add(clockMargin)):
			return unknown(ReasonPurged, errPurged)
		default:
			return ruling{verdict: txmq.Rollback, reason: ReasonFenced, fence: true}
		}
	})
	if r.verdict != txmq.Unknown {
		return r.verdict, nil
	}
	if r.err == nil {
		r.err = model.ErrLocked
	}
	var known *txmq.OpError
	if errors.As(r.err, &known) {
		r.err = known.Err
	}
	return txmq.Unknown, &txmq.OpError{Op: "resolve", EventID: a.EventID, Err: r.err}
}

// bornOf is the time in an attempt's name; zero where it holds none, as that of
// a raw client's half.
func bornOf(attempt string) time.Time {
	id, err := uuid.Parse(attempt)
	if err != nil || id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}
