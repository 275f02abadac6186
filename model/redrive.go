package model

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// dueAtOnce is the next_retry_at of what a person retries: over by any Stale.
const dueAtOnce = "1970-01-02 00:00:00.000"

// Due lists FAIL rows whose next_retry_at is over by stale, so that nobody seems
// to redeliver them, and those that a person retried; the longest due first. It
// walks idx_compensate and takes no lock.
func (s *Store) Due(ctx context.Context, stale time.Duration, limit int) ([]ConsumeRecord, error) {
	rows, err := s.due(ctx, s.pool, stale, limit)
	return rows, wrapOp("compensate", "", err)
}

func (s *Store) due(ctx context.Context, c conn, stale time.Duration, limit int) ([]ConsumeRecord, error) {
	rows, err := c.QueryContext(ctx, s.q("SELECT "+recordColumns+` FROM {prefix}msg_consume
		WHERE status = 'FAIL' AND next_retry_at <= {now+?} ORDER BY next_retry_at LIMIT ?`), -micros(stale), limit)
	if err != nil {
		return nil, err
	}
	return scanRecords(rows)
}

// Redrive takes the right to deliver r's message again: FAIL -> FAIL, due again
// after next, and marked as redriven. Of two that try, and of tries before
// next_retry_at is over by stale, one gets true. A row that another transaction
// holds for about a second gives false: somebody works on it. By primary key. It
// leaves version and updated_at: nobody has worked on the event.
func (s *Store) Redrive(ctx context.Context, r ConsumeRecord, stale, next time.Duration) (bool, error) {
	if next <= 0 {
		return false, wrapOp("redrive", r.EventID, &txmq.FieldError{Field: "next", Value: next, Want: "more than 0"})
	}
	n, err := s.changeWaiting(ctx, time.Second, `UPDATE {prefix}msg_consume SET next_retry_at = {now+?}, redriven_at = {now}
		WHERE id = ? AND status = 'FAIL' AND version = ? AND next_retry_at <= {now+?}`,
		micros(next), r.ID, r.Version, -micros(stale))
	return s.moved("redrive", r, n, err)
}

// Postpone: FAIL -> FAIL, due again by Due when next and its stale are over,
// for a row that can't be delivered again now; nothing was sent, or it is not
// known. It does not touch the mark of a redrive. By primary key; false as for
// Redrive.
func (s *Store) Postpone(ctx context.Context, r ConsumeRecord, next time.Duration) (bool, error) {
	n, err := s.changeWaiting(ctx, time.Second, `UPDATE {prefix}msg_consume SET next_retry_at = {now+?}
		WHERE id = ? AND status = 'FAIL' AND version = ?`, micros(next), r.ID, r.Version)
	return s.moved("postpone", r, n, err)
}

// moved says whether a change met its row; one that is locked it did not.
func (s *Store) moved(op string, r ConsumeRecord, n int64, err error) (bool, error) {
	if s.d.lockWait(err) {
		return false, nil
	}
	return n == 1, wrapOp(op, r.EventID, err)
}

// Payload is what a row that was DEAD keeps of its message.
type Payload struct {
	Body       []byte
	Properties map[string]string
}

// Payload reads it by primary key: txmq.ErrNotFound where the row keeps none.
func (s *Store) Payload(ctx context.Context, r ConsumeRecord) (Payload, error) {
	var p Payload
	var properties []byte
	err := s.pool.QueryRowContext(ctx, s.q("SELECT body, properties FROM {prefix}msg_consume WHERE id = ?"), r.ID).
		Scan(&p.Body, &properties)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && p.Body == nil:
		err = txmq.ErrNotFound
	case err == nil && properties != nil:
		p.Properties, err = decodeProperties(properties)
	}
	return p, wrapOp("payload", r.EventID, err)
}
