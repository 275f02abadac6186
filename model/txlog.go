package model

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// States of a row in the transaction log.
const (
	Committed = "COMMITTED"
	Fenced    = "FENCED"
)

// Routes of a committed message.
const (
	RouteHalf   = "HALF"
	RouteOutbox = "OUTBOX"
)

// LogEntry is a row of t_tx_log. Its presence is the answer to a check-back.
type LogEntry struct {
	ID            int64  `json:"id" gorm:"primaryKey"`
	Attempt       string `json:"attempt"`
	Topic         string `json:"topic"`
	EventID       string `json:"event_id"` // empty on a fence: the event can be sent again
	FencedEvent   string `json:"fenced_event"`
	State         string `json:"state"`
	Route         string `json:"route"`
	ProducerGroup string `json:"producer_group"`
	CreatedAt     Time   `json:"created_at"`
	RescuedAt     Time   `json:"rescued_at"`
}

// TableName is the table's name with the default prefix.
func (LogEntry) TableName() string { return DefaultPrefix + "tx_log" }

// Attempt names one call of SendInTransaction.
type Attempt struct {
	ID      string
	Topic   string
	EventID string
	Group   string
}

func (a Attempt) check() error {
	return checkKeys([2]string{"attempt", a.ID}, [2]string{"topic", a.Topic}, [2]string{"event ID", a.EventID},
		[2]string{"producer group", a.Group})
}

// ErrLocked: a running transaction holds the row; nothing can be said of it yet.
var ErrLocked = errors.New("row is locked by a running transaction")

const insertLog = `INSERT INTO {prefix}tx_log (attempt, topic, event_id, fenced_event, state, route, producer_group,
	created_at, rescued_at) VALUES (?, ?, ?, ?, ?, ?, ?, {now}, NULL)`

// Log writes the row that says COMMITTED, as the first statement of the local
// transaction. txmq.ErrFenced: the checker was here before. Collision on the
// event: txmq.ErrDuplicateEvent. Either way the transaction has to be rolled
// back. Waits for another open transaction of the same event or attempt.
func (t *Tx) Log(ctx context.Context, a Attempt, route string) error {
	if err := a.check(); err != nil {
		return wrapOp("log", a.EventID, err)
	}
	fresh, err := t.s.d.insert(ctx, t.conn(), t.s.q(insertLog),
		[]any{a.ID, a.Topic, a.EventID, nil, Committed, route, a.Group})
	if err != nil || fresh {
		return wrapOp("log", a.EventID, err)
	}
	e, err := t.s.look(ctx, t.conn(), a.ID, "")
	switch {
	case err == nil && e.State == Fenced:
		err = txmq.ErrFenced
	case err == nil, errors.Is(err, txmq.ErrNotFound):
		err = txmq.ErrDuplicateEvent
	}
	return wrapOp("log", a.EventID, err)
}

// Look reads the row of an attempt: txmq.ErrNotFound when there is none,
// ErrLocked when a running transaction has it open (SQLite can't see that; there
// the fence meets it). It waits for nobody.
func (t *Tx) Look(ctx context.Context, attempt string) (LogEntry, error) {
	// A committed row never changes its answer, so it is read without a lock:
	// two checkers of one attempt would shut each other out.
	e, err := t.s.look(ctx, t.conn(), attempt, "")
	if !errors.Is(err, txmq.ErrNotFound) {
		return e, err
	}
	e, err = t.s.look(ctx, t.conn(), attempt, "{lock nowait}")
	if t.s.d.lockWait(err) {
		err = ErrLocked
	}
	return e, err
}

// look uses uk_attempt.
func (s *Store) look(ctx context.Context, c conn, attempt, lock string) (LogEntry, error) {
	var e LogEntry
	var event, fenced sql.NullString
	err := c.QueryRowContext(ctx, s.q(`SELECT id, attempt, topic, event_id, fenced_event, state, route, producer_group,
		created_at, rescued_at FROM {prefix}tx_log WHERE attempt = ? `+lock), attempt).
		Scan(&e.ID, &e.Attempt, &e.Topic, &event, &fenced, &e.State, &e.Route, &e.ProducerGroup, &e.CreatedAt, &e.RescuedAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = txmq.ErrNotFound
	}
	e.EventID, e.FencedEvent = event.String, fenced.String
	return e, err
}

// Fence inserts FENCED under the attempt, so that its local transaction can no
// longer commit. false: a row is there already; look again. A running
// transaction that holds the attempt gives ErrLocked within about a second.
func (t *Tx) Fence(ctx context.Context, a Attempt) (bool, error) {
	if err := a.check(); err != nil {
		return false, wrapOp("fence", a.EventID, err)
	}
	var fresh bool
	err := t.s.d.waiting(ctx, t.conn(), time.Second, func(prefix string) (err error) {
		fresh, err = t.s.d.insert(ctx, t.conn(), t.s.prefixed(prefix, insertLog),
			[]any{a.ID, a.Topic, nil, a.EventID, Fenced, RouteHalf, a.Group})
		return err
	})
	if t.s.d.lockWait(err) {
		err = ErrLocked
	}
	return fresh, wrapOp("fence", a.EventID, err)
}

// LogHorizon gives the database's time, and the time before which the log may
// lack rows because they were purged (zero: nothing was purged).
func (t *Tx) LogHorizon(ctx context.Context) (now, purgedBefore time.Time, err error) {
	var n, p Time
	err = t.conn().QueryRowContext(ctx, t.s.q("SELECT {now}, (SELECT value FROM {prefix}meta WHERE name = '"+
		metaLogPurgedBefore+"')")).Scan(&n, &p)
	return n.Time, p.Time, wrapOp("look", "", err)
}

// SetLogPurgedBefore moves the watermark forward, never back. The purge calls
// it before it deletes.
func (s *Store) SetLogPurgedBefore(ctx context.Context, at time.Time) error {
	value := at.UTC().Format(timeLayout)
	if err := s.putMetaOnce(ctx, metaLogPurgedBefore, value); err != nil {
		return err
	}
	_, err := s.changeAlone(ctx, "UPDATE {prefix}meta SET value = ?, updated_at = {now} WHERE name = ? AND value < ?",
		value, metaLogPurgedBefore, value)
	return wrapOp("meta", "", err)
}
