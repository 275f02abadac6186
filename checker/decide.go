package checker

import (
	"errors"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// clockMargin is how far a producer's clock may be ahead of the database's
// before a half whose row was purged looks younger than the purge.
const clockMargin = 10 * time.Minute

// sight is what one transaction saw of an attempt.
type sight struct {
	entry model.LogEntry
	err   error // of the look: nil, txmq.ErrNotFound, model.ErrLocked, or the database's

	// with ErrNotFound only
	now          time.Time // by the database
	purgedBefore time.Time // zero: nothing was ever purged
}

// ruling is what to answer, and to do first.
type ruling struct {
	verdict txmq.Verdict
	reason  string
	fence   bool  // insert the fence and commit it; the verdict holds only then
	err     error // why it is Unknown, where something is wrong
}

var errPurged = errors.New("born before the log's purge watermark, so its row may have been deleted")

// decide is where the verdict of a check-back is made.
func (c *Checker) decide(h half, s sight) ruling {
	switch {
	case s.err == nil:
		return ofEntry(h.attempt, s.entry)
	case errors.Is(s.err, model.ErrLocked):
		return unknown(ReasonLocked, nil)
	case !errors.Is(s.err, txmq.ErrNotFound):
		return unknown(ReasonDatabase, s.err)
	case h.earliest.Before(s.purgedBefore.Add(clockMargin)) && !s.purgedBefore.IsZero():
		return unknown(ReasonPurged, errPurged)
	case h.times >= c.cfg.MaxChecks:
		return ruling{verdict: txmq.Rollback, reason: ReasonLastCheck, fence: true}
	case h.times <= 1, h.age(s.now, c.cfg.Interval) < c.cfg.FenceAfter:
		return unknown(ReasonTooYoung, nil)
	default:
		return ruling{verdict: txmq.Rollback, reason: ReasonFenced, fence: true}
	}
}

// ofEntry is the verdict where the attempt has a row.
func ofEntry(a model.Attempt, e model.LogEntry) ruling {
	switch {
	case e.Topic != a.Topic:
		return unknown(ReasonBadState, errors.New("the attempt's row is of topic "+e.Topic))
	case e.State == model.Committed && e.Route == model.RouteHalf:
		return ruling{verdict: txmq.Commit, reason: ReasonCommitted}
	case e.State == model.Committed && e.Route == model.RouteOutbox, e.State == model.Fenced:
		return ruling{verdict: txmq.Rollback, reason: ReasonRolledBack}
	default:
		return unknown(ReasonBadState, errors.New("state "+e.State+", route "+e.Route))
	}
}

func unknown(reason string, err error) ruling { return ruling{reason: reason, err: err} }
