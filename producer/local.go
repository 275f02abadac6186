package producer

import (
	"context"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/localtx"
	"github.com/txmq/txmq/internal/rocketmq"
)

const (
	beginTries  = localtx.BeginTries
	settleLimit = localtx.SettleLimit
)

// local is called, on the caller's goroutine, when the half is stored. It
// returns what to tell the broker. If fn ends the goroutine (runtime.Goexit),
// the transaction is rolled back, and the broker is told Unknown.
func (s *send) local(ctx context.Context, h rocketmq.Half) txmq.Verdict {
	s.ran, s.msgID = true, h.MsgID
	s.halfSent(ctx)
	s.err = localtx.ErrNotReturned
	s.known, s.panicked, s.err = localtx.Call{
		Store: s.p.cfg.Store, Attempt: s.attempt, Fn: s.fn,
		Resolve: checker.Resolve, Settle: s.p.settleLimit,
		Committing: &s.committing, Logger: s.p.cfg.Logger,
	}.Run(ctx)
	s.told = s.known
	if s.known != txmq.Commit {
		return s.told
	}
	if err := fault.Point(fault.SendAfterCommit); err != nil {
		s.told = txmq.Unknown // an end-transaction that is lost
	}
	return s.told
}
