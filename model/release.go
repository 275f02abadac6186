package model

import (
	"context"

	"github.com/txmq/txmq"
)

// Release: PROCESSING -> FAIL, due now, by owner and version, for a run that
// ended through no fault of the event (a deadlock, a stop). It takes the run
// back out of retry_cnt, so that it costs no attempt: -1 says that no run has
// counted yet. A row that moved gives txmq.ErrLeaseLost.
func (s *Store) Release(ctx context.Context, h Held, why error) error {
	return s.release(ctx, h, "", why)
}

// ReleaseLost is Release of a record that was claimed from a worker that is
// lost, and was not worked on: the mark of that stays.
func (s *Store) ReleaseLost(ctx context.Context, h Held, lost string, why error) error {
	return s.release(ctx, h, lost, why)
}

func (s *Store) release(ctx context.Context, h Held, owner string, why error) error {
	n, err := s.changeAlone(ctx, `UPDATE {prefix}msg_consume SET status = 'FAIL', version = version + 1,
		retry_cnt = retry_cnt - 1, owner = ?, lease_until = NULL, next_retry_at = {now}, last_error = ?, updated_at = {now}`+whereHeld,
		owner, cut(why), h.EventID, h.Consumer, h.Owner, h.Version)
	if err == nil && n != 1 {
		err = txmq.ErrLeaseLost
	}
	return wrapOp("release", h.EventID, err)
}
