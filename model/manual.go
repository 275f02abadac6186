package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/txmq/txmq"
)

// By says who acts by hand, and why. Both are required; t_audit keeps them.
type By struct {
	Actor  string // at most 255 characters
	Reason string // at most 2000 characters
}

// Check gives a *txmq.FieldError for each field that Retry
// and Resolve would refuse.
func (b By) Check() error {
	var errs []error
	for _, f := range []struct {
		name, value string
		most        int
	}{{"Actor", b.Actor, 255}, {"Reason", b.Reason, MaxErrorRunes}} {
		switch n := utf8.RuneCountInString(f.value); {
		case strings.TrimSpace(f.value) == "":
			errs = append(errs, &txmq.FieldError{Field: "model.By." + f.name, Want: fmt.Sprintf("1 to %d characters", f.most)})
		case n > f.most:
			errs = append(errs, &txmq.FieldError{Field: "model.By." + f.name, Value: fmt.Sprintf("%d characters", n), Want: fmt.Sprintf("1 to %d characters", f.most)})
		}
	}
	return errors.Join(errs...)
}

// Retry: DEAD, FAIL -> FAIL, by hand: due at once, with one more attempt: it runs
// once whatever retry_cnt is, since it has lost no worker. r is
// the record as it was seen; when it has moved, txmq.ErrLeaseLost. A row that
// stands for a message without event ID (Nameless) gives txmq.ErrMissingID: the
// same message would only be buried again.
func (s *Store) Retry(ctx context.Context, r ConsumeRecord, by By) error {
	if r.Nameless() {
		return wrapOp("retry", r.EventID, fmt.Errorf(
			"%w of its own that can be run: have it published again with one, and resolve this record", txmq.ErrMissingID))
	}
	// By primary key.
	return s.byHand(ctx, "retry", r, by, Fail, `UPDATE {prefix}msg_consume SET status = 'FAIL', version = version + 1,
		retry_cnt = CASE WHEN retry_cnt > 0 THEN retry_cnt - 1 ELSE retry_cnt END,
		owner = '', lease_until = NULL, next_retry_at = '`+dueAtOnce+`', updated_at = {now}
		WHERE id = ? AND version = ? AND status IN ('DEAD', 'FAIL')`, r.ID, r.Version)
}

// Resolve: DEAD, FAIL -> SUCCESS, by hand, for what a person has settled in
// another way: nothing runs. last_error says who and why. As Retry otherwise.
func (s *Store) Resolve(ctx context.Context, r ConsumeRecord, by By) error {
	// By primary key.
	return s.byHand(ctx, "resolve", r, by, Success, `UPDATE {prefix}msg_consume SET status = 'SUCCESS', version = version + 1,
		owner = '', lease_until = NULL, next_retry_at = NULL, last_error = ?, body = NULL, properties = NULL, updated_at = {now}
		WHERE id = ? AND version = ? AND status IN ('DEAD', 'FAIL')`,
		cut(fmt.Errorf("resolved by %s: %s", by.Actor, by.Reason)), r.ID, r.Version)
}

// byHand runs the transition and its line in t_audit in one transaction.
func (s *Store) byHand(ctx context.Context, action string, r ConsumeRecord, by By, after Status, template string, args ...any) error {
	if err := by.Check(); err != nil {
		return wrapOp(action, r.EventID, err)
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	n, err := s.change(ctx, tx.conn(), template, args...)
	if err == nil && n != 1 {
		return staleRow(action, Arrival{EventID: r.EventID, Consumer: r.Consumer})
	}
	if err == nil {
		_, err = tx.conn().ExecContext(ctx, s.q(`INSERT INTO {prefix}audit (actor, action, reason, event_id, consumer,
			state_before, state_after, retry_cnt, version, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {now})`),
			by.Actor, action, by.Reason, r.EventID, r.Consumer, string(r.Status), string(after), r.RetryCnt, r.Version)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	return wrapOp(action, r.EventID, err)
}

// AuditEntry is a row of t_audit: one manual action.
type AuditEntry struct {
	ID          int64  `json:"id" gorm:"primaryKey"`
	Actor       string `json:"actor"`
	Action      string `json:"action"`
	Reason      string `json:"reason"`
	EventID     string `json:"event_id"`
	Consumer    string `json:"consumer"`
	StateBefore Status `json:"state_before"`
	StateAfter  Status `json:"state_after"`
	RetryCnt    int    `json:"retry_cnt"` // before the action, as Version
	Version     int64  `json:"version"`
	CreatedAt   Time   `json:"created_at"`
}

// TableName is the table's name with the default prefix.
func (AuditEntry) TableName() string { return DefaultPrefix + "audit" }

// Audit lists the manual actions on an event, or all for "", with ids above
// after, at most limit (1 to 1000), by id. It uses idx_event or the primary key.
func (s *Store) Audit(ctx context.Context, eventID string, after int64, limit int) (list []AuditEntry, err error) {
	if limit < 1 || limit > 1000 {
		return nil, &txmq.FieldError{Field: "limit", Value: limit, Want: "1 to 1000"}
	}
	rows, err := s.pool.QueryContext(ctx, s.q(`SELECT id, actor, action, reason, event_id, consumer, state_before, state_after,
		retry_cnt, version, created_at FROM {prefix}audit WHERE id > ? AND (? = '' OR event_id = ?) ORDER BY id LIMIT ?`), after, eventID, eventID, limit)
	if err != nil {
		return nil, wrapOp("audit", eventID, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e AuditEntry
		if err := rows.Scan(&e.ID, &e.Actor, &e.Action, &e.Reason, &e.EventID, &e.Consumer, &e.StateBefore, &e.StateAfter,
			&e.RetryCnt, &e.Version, &e.CreatedAt); err != nil {
			return nil, wrapOp("audit", eventID, err)
		}
		list = append(list, e)
	}
	return list, wrapOp("audit", eventID, rows.Err())
}
