package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
)

// Held is a record that Claim or ApplyStrict gave to this worker.
type Held struct {
	EventID  string
	Consumer string
	Owner    string
	Version  int64
}

// whereHeld finds a Held by uk_event_consumer. COALESCE keeps the server from an
// index that begins with status: MariaDB takes one, since its entries are
// shorter, as soon as it counts one row in PROCESSING, and then the statement
// waits for rows of other events, and deadlocks with their own.
const whereHeld = " WHERE event_id = ? AND consumer = ? AND COALESCE(status, '') = 'PROCESSING' AND owner = ? AND version = ?"

// Succeed: PROCESSING -> SUCCESS, by owner and version, as the last statement
// of the transaction with the handler's work. A worker that lost its lease gets
// txmq.ErrLeaseLost and has to roll back. It closes the user's part: in a
// transaction that the server has undone, this statement would commit alone.
func (t *Tx) Succeed(ctx context.Context, h Held) error {
	if err := t.Close(ctx); err != nil {
		return wrapOp("succeed", h.EventID, err)
	}
	n, err := t.s.change(ctx, t.conn(), `UPDATE {prefix}msg_consume SET status = 'SUCCESS', owner = '', lease_until = NULL,
		next_retry_at = NULL, body = NULL, properties = NULL, updated_at = {now}`+whereHeld,
		h.EventID, h.Consumer, h.Owner, h.Version)
	if err == nil && n != 1 {
		err = txmq.ErrLeaseLost
	}
	return wrapOp("succeed", h.EventID, err)
}

// Note writes into last_error of a record that this transaction has made
// SUCCESS why there was nothing to do. It changes no state, and 0 rows are no
// error: the same text stands there already.
func (t *Tx) Note(ctx context.Context, eventID, consumer string, why error) error {
	_, err := t.s.change(ctx, t.conn(), `UPDATE {prefix}msg_consume SET last_error = ?
		WHERE event_id = ? AND consumer = ? AND COALESCE(status, '') = 'SUCCESS'`, cut(why), eventID, consumer)
	return wrapOp("note", eventID, err)
}

// Failure says how an attempt ended.
type Failure struct {
	Arrival
	// Owner and Version are what Claim gave. For an Apply that was rolled back,
	// Owner is empty and Version the one seen before, 0 for no row.
	Owner   string
	Version int64
	// RetryCnt counts the runs before the one that failed.
	RetryCnt int
	// Dead buries the event; else it is FAIL, due for jobs after RetryIn.
	Dead    bool
	RetryIn time.Duration
	Err     error
	// Keep has FAIL keep them as well: a job delivers the event again, and this
	// may be the last copy.
	Keep bool
	// Body and Properties are kept of DEAD rows only, so that they can be
	// retried after the topic's retention. nil: not kept; but what is there
	// stays until SUCCESS, since a retry may be all that still has it.
	Body       []byte
	Properties map[string]string
}

func (f Failure) status() Status {
	if f.Dead {
		return Dead
	}
	return Fail
}

// Fail: (none), PROCESSING, FAIL -> FAIL or DEAD, in a transaction of its own. The
// row then says where the message lies that failed.
// It never touches SUCCESS, nor a row that moved since: txmq.ErrLeaseLost, and
// the row has to be read again.
func (s *Store) Fail(ctx context.Context, f Failure) error {
	if err := f.check(); err != nil {
		return wrapOp("fail", f.EventID, err)
	}
	body, properties, err := f.kept()
	if err != nil {
		return wrapOp("fail", f.EventID, err)
	}
	if f.Owner == "" && f.Version == 0 {
		fresh, err := s.insertEnded(ctx, f, 1, body, properties)
		if err == nil && !fresh {
			return staleRow("fail", f.Arrival)
		}
		return wrapOp("fail", f.EventID, err)
	}
	// By uk_event_consumer, for which COALESCE sees to as in whereHeld. An Apply's
	// row is FAIL, or PROCESSING under a lease that is over; a Claim's is
	// PROCESSING and its owner's.
	args := []any{string(f.status()), f.RetryCnt, micros(f.RetryIn), cut(f.Err), body, properties}
	place := learn
	if f.At.Topic != "" { // a copy of today outlives the original
		place = "topic = ?, broker_name = ?, queue_id = ?, queue_offset = ?, msg_id = ?, offset_msg_id = ?, payload_hash = ?"
	}
	args = append(append(args, f.learned()...), f.EventID, f.Consumer, f.Version, f.Owner, f.Owner)
	n, err := s.changeAlone(ctx, `UPDATE {prefix}msg_consume SET status = ?, version = version + 1, retry_cnt = ?,
		owner = '', lease_until = NULL, next_retry_at = {now+?}, last_error = ?,
		body = COALESCE(?, body), properties = COALESCE(?, properties), updated_at = {now}, `+place+`
		WHERE event_id = ? AND consumer = ? AND version = ? AND (COALESCE(status, '') = 'PROCESSING' AND owner = ?
			OR ? = '' AND (COALESCE(status, '') = 'FAIL' OR COALESCE(status, '') = 'PROCESSING' AND lease_until <= {now}))`, args...)
	if err == nil && n != 1 {
		return staleRow("fail", f.Arrival)
	}
	return wrapOp("fail", f.EventID, err)
}

// Bury: (none) -> DEAD, for what can't have a record of its own: a message
// without event ID, or with another body than its event ID stands for. The key
// is made from where the message lies, so a second delivery finds it: no error.
// Version 0 says that the row is such a one.
func (s *Store) Bury(ctx context.Context, f Failure) error {
	f.Dead = true
	if err := f.check(); err != nil {
		return wrapOp("bury", f.EventID, err)
	}
	body, properties, err := f.kept()
	if err == nil {
		_, err = s.insertEnded(ctx, f, 0, body, properties)
	}
	return wrapOp("bury", f.EventID, err)
}

func (s *Store) insertEnded(ctx context.Context, f Failure, version int64, body, properties []byte) (bool, error) {
	args := append(f.withPlace(f.EventID, f.Consumer, string(f.status()), f.RetryCnt, version, micros(f.RetryIn), cut(f.Err)),
		body, properties)
	return s.insertAlone(ctx, insertRecord+
		"(?, ?, ?, ?, ?, '', NULL, {now+?}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now})", args)
}

func (f Failure) kept() (body, properties []byte, err error) {
	if !f.Dead && !f.Keep {
		return nil, nil, nil
	}
	if f.Properties != nil {
		properties, err = encodeProperties(f.Properties)
	}
	return f.Body, properties, err
}

// Sweep: PROCESSING with lease over -> FAIL, at most limit rows, oldest lease
// first, each by compare-and-set: a row that finished or was renewed meanwhile
// stays. It returns the rows as they were.
func (s *Store) Sweep(ctx context.Context, limit int) ([]ConsumeRecord, error) {
	stuck, err := s.stuck(ctx, s.pool, limit)
	if err != nil {
		return nil, wrapOp("sweep", "", err)
	}
	var swept []ConsumeRecord
	var errs []error
	for _, r := range stuck {
		if err := fault.Point(fault.SweepBeforeRow); err != nil {
			return swept, wrapOp("sweep", r.EventID, err)
		}
		ok, err := s.SweepOne(ctx, r)
		if ok {
			swept = append(swept, r)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return swept, errors.Join(errs...)
}

// stuck walks idx_sweep and takes no lock.
func (s *Store) stuck(ctx context.Context, c conn, limit int) ([]ConsumeRecord, error) {
	rows, err := c.QueryContext(ctx, s.q("SELECT "+recordColumns+` FROM {prefix}msg_consume
		WHERE status = 'PROCESSING' AND lease_until <= {now} ORDER BY lease_until LIMIT ?`), limit)
	if err != nil {
		return nil, err
	}
	return scanRecords(rows)
}

// SweepOne sweeps the record if it still is as r says; else it gives false. So
// it does for a row that another transaction holds for about a second: its
// worker lives after all, or the next sweep finds it free. The owner's name stays
// on the row: FAIL with an owner has lost its worker.
func (s *Store) SweepOne(ctx context.Context, r ConsumeRecord) (bool, error) {
	n, err := s.changeWaiting(ctx, time.Second, `UPDATE {prefix}msg_consume SET status = 'FAIL', version = version + 1,
		lease_until = NULL, next_retry_at = {now}, last_error = ?, updated_at = {now}
		WHERE id = ? AND status = 'PROCESSING' AND version = ? AND lease_until <= {now}`,
		cut(fmt.Errorf("swept: the lease of %s was over", r.Owner)), r.ID, r.Version)
	return s.moved("sweep", r, n, err)
}
