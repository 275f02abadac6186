package model

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// Decision says what a delivery has to do, by what its record says.
type Decision uint8

const (
	// Run the handler: the record is this delivery's.
	Run Decision = iota + 1
	// Duplicate: SUCCESS stands already; acknowledge.
	Duplicate
	// Buried: DEAD stands already; acknowledge, only Retry revives it.
	Buried
	// InProgress: another worker holds it; later, never acknowledge.
	InProgress
)

// Claimed is what Apply or Claim found, and for Run, what it holds.
type Claimed struct {
	Decision Decision

	// Version holds the record: Succeed, Fail and Extend ask for it. For Apply
	// it is the version seen before, 0 when there was no row.
	Version int64
	// Status seen before, empty when there was no row.
	Seen Status
	// RetryCnt counts the runs before this one.
	RetryCnt int
	// TookOver: the record was PROCESSING under a lease that was over.
	TookOver bool
	// Lost: it was, or the sweep has found it so since; its last worker may have
	// died of it. LostOwner is that worker.
	Lost      bool
	LostOwner string
	// Redriven: a job delivers this event again until it is done, so a failure
	// needs no redelivery by the broker beside it.
	Redriven bool
	// Rest of the other worker's lease, for InProgress; 0 when it is not known.
	Rest time.Duration
}

// tries bounds how often a claim looks again because the row moved under it.
const tries = 5

var errMoving = errors.New("the record keeps changing hands")

const insertRecord = `INSERT INTO {prefix}msg_consume (event_id, consumer, status, retry_cnt, version, owner, lease_until,
	next_retry_at, last_error, payload_hash, topic, broker_name, queue_id, queue_offset, msg_id, offset_msg_id,
	body, properties, created_at, updated_at) VALUES `

// withPlace adds to the first arguments of insertRecord where the message lies
// and what it holds, in its order.
func (a Arrival) withPlace(first ...any) []any {
	return append(append(make([]any, 0, len(first)+9), first...), // two more for Failure's
		a.PayloadHash[:], a.At.Topic, a.At.BrokerName, a.At.QueueID, a.At.QueueOffset, a.At.MsgID, a.At.OffsetMsgID)
}

// Apply: (none), FAIL, PROCESSING with lease over -> SUCCESS, in the
// transaction that the handler then works in; nobody sees it before the COMMIT.
// It is the transaction's first statement. Another transaction that is open on
// the same key is waited for at most wait, and then counts as InProgress: the
// transaction has to be rolled back then, as after an error.
//
// A deadlock here (two first deliveries) is an error that Store.Deadlock tells.
func (t *Tx) Apply(ctx context.Context, a Arrival, wait time.Duration) (Claimed, error) {
	if err := a.check(); err != nil {
		return Claimed{}, wrapOp("apply", a.EventID, err)
	}
	k := &claiming{s: t.s, c: t.conn(), a: a, wait: wait, insert: insertApplied, take: takeApplied}
	claimed, err := k.run(ctx)
	if claimed.Decision == Run {
		claimed.Version-- // as seen before: what a rollback goes back to
	}
	return claimed, wrapOp("apply", a.EventID, err)
}

// insertApplied locks the new row; a duplicate leaves a shared lock on the old
// one.
func insertApplied(ctx context.Context, k *claiming, prefix string) (bool, error) {
	return k.s.d.insert(ctx, k.c, k.s.prefixed(prefix, insertRecord+
		"(?, ?, 'SUCCESS', 0, 1, '', NULL, NULL, '', ?, ?, ?, ?, ?, ?, ?, NULL, NULL, {now}, {now})"),
		k.a.withPlace(k.a.EventID, k.a.Consumer))
}

// takeApplied goes by primary key; it locks the row until the COMMIT.
func takeApplied(ctx context.Context, k *claiming, prefix string, r ConsumeRecord) (int64, error) {
	return k.s.changePrefixed(ctx, k.c, prefix, `UPDATE {prefix}msg_consume SET status = 'SUCCESS', version = version + 1,
		retry_cnt = retry_cnt + 1, owner = '', lease_until = NULL, next_retry_at = NULL, body = NULL, properties = NULL,
		updated_at = {now}, `+learn+`
		WHERE id = ? AND version = ? AND (status = 'FAIL' OR status = 'PROCESSING' AND lease_until <= {now})`,
		append(k.a.learned(), r.ID, r.Version)...)
}

// ApplyStrict is Apply that writes PROCESSING under a lease of owner, which
// Succeed has to turn as the transaction's last statement. What the user's
// function commits by itself, past the guard, then leaves a record that says so
// and can be taken over, not SUCCESS over half the work. Its Claimed is as
// Apply's; Held is what Succeed asks for.
func (t *Tx) ApplyStrict(ctx context.Context, a Arrival, owner string, lease, wait time.Duration) (Claimed, Held, error) {
	if err := errors.Join(a.check(), checkKeys([2]string{"owner", owner})); err != nil {
		return Claimed{}, Held{}, wrapOp("apply", a.EventID, err)
	}
	claimed, err := leasing(t.s, t.conn(), a, owner, lease, wait).run(ctx)
	held := Held{EventID: a.EventID, Consumer: a.Consumer, Owner: owner, Version: claimed.Version}
	if claimed.Decision == Run {
		claimed.Version-- // as seen before: what a rollback goes back to
	}
	return claimed, held, wrapOp("apply", a.EventID, err)
}

// Claim: (none), FAIL -> PROCESSING, and TakeOver: PROCESSING with lease over ->
// PROCESSING, in a transaction of its own, so that people and jobs see who works
// on it. The row is owner's until lease is over by the database's clock.
// Version and RetryCnt rise with each change of hands.
func (s *Store) Claim(ctx context.Context, a Arrival, owner string, lease, wait time.Duration) (Claimed, error) {
	if err := errors.Join(a.check(), checkKeys([2]string{"owner", owner})); err != nil {
		return Claimed{}, wrapOp("claim", a.EventID, err)
	}
	// One connection for all of it: where the wait is a session's setting, it
	// must not leak into another.
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return Claimed{}, wrapOp("claim", a.EventID, err)
	}
	defer func() { _ = c.Close() }()
	k := leasing(s, c, a, owner, lease, wait)
	var claimed Claimed
	err = s.alone(func() (err error) {
		claimed, err = k.run(ctx)
		return err
	})
	return claimed, wrapOp("claim", a.EventID, err)
}

// claiming is an Apply or a Claim on its way. It is a struct and no closures,
// because each delivery makes one.
type claiming struct {
	s    *Store
	c    conn
	a    Arrival
	wait time.Duration

	owner string // of leasing only, as lease
	lease time.Duration

	insert func(ctx context.Context, k *claiming, prefix string) (fresh bool, err error)
	take   func(ctx context.Context, k *claiming, prefix string, r ConsumeRecord) (n int64, err error)

	fresh bool  // what insert gave
	n     int64 // what take gave
}

// leasing makes a record owner's for lease.
func leasing(s *Store, c conn, a Arrival, owner string, lease, wait time.Duration) *claiming {
	return &claiming{s: s, c: c, a: a, wait: wait, owner: owner, lease: lease, insert: insertLeased, take: takeLeased}
}

func insertLeased(ctx context.Context, k *claiming, prefix string) (bool, error) {
	return k.s.d.insert(ctx, k.c, k.s.prefixed(prefix, insertRecord+
		"(?, ?, 'PROCESSING', 0, 1, ?, {now+?}, NULL, '', ?, ?, ?, ?, ?, ?, ?, NULL, NULL, {now}, {now})"),
		k.a.withPlace(k.a.EventID, k.a.Consumer, k.owner, micros(k.lease)))
}

// takeLeased goes by primary key. A lease that was renewed meanwhile is not
// taken.
func takeLeased(ctx context.Context, k *claiming, prefix string, r ConsumeRecord) (int64, error) {
	return k.s.changePrefixed(ctx, k.c, prefix, `UPDATE {prefix}msg_consume SET status = 'PROCESSING', version = version + 1,
		retry_cnt = retry_cnt + 1, owner = ?, lease_until = {now+?}, next_retry_at = NULL, updated_at = {now}, `+learn+`
		WHERE id = ? AND version = ? AND (status = 'FAIL' OR status = 'PROCESSING' AND lease_until <= {now})`,
		append(append([]any{k.owner, micros(k.lease)}, k.a.learned()...), r.ID, r.Version)...)
}

// run inserts, or decides by the row that is there, or takes it by
// compare-and-set.
func (k *claiming) run(ctx context.Context) (Claimed, error) {
	s := k.s
	for range tries {
		err := s.d.waiting(ctx, k.c, k.wait, func(prefix string) (err error) {
			k.fresh, err = k.insert(ctx, k, prefix)
			return err
		})
		switch {
		case s.d.lockWait(err):
			return Claimed{Decision: InProgress}, nil
		case err != nil:
			return Claimed{}, err
		case k.fresh:
			return Claimed{Decision: Run, Version: 1}, nil
		}
		r, err := s.find(ctx, k.c, k.a.EventID, k.a.Consumer)
		if errors.Is(err, txmq.ErrNotFound) {
			continue // rolled back or purged since
		}
		if err != nil {
			return Claimed{}, err
		}
		if d, err := decide(r, k.a); d != Run || err != nil {
			return Claimed{Decision: d, Rest: max(r.Rest, 0), Version: r.Version, Seen: r.Status, RetryCnt: r.RetryCnt}, err
		}
		err = s.d.waiting(ctx, k.c, k.wait, func(prefix string) (err error) {
			k.n, err = k.take(ctx, k, prefix, r)
			return err
		})
		switch {
		case s.d.lockWait(err):
			return Claimed{Decision: InProgress}, nil
		case err != nil:
			return Claimed{}, err
		case k.n == 1:
			return Claimed{
				Decision: Run, Version: r.Version + 1, Seen: r.Status,
				RetryCnt: r.RetryCnt + 1, TookOver: r.Status == Processing, Redriven: r.Redriven(),
				Lost: r.Lost(), LostOwner: r.Owner,
			}, nil
		}
	}
	return Claimed{}, errMoving
}

// decide reads a record as a delivery by the broker does: FAIL is always due.
func decide(r ConsumeRecord, a Arrival) (Decision, error) {
	switch {
	case !r.unknownPayload() && !bytes.Equal(r.PayloadHash, a.PayloadHash[:]):
		return 0, txmq.ErrPayloadMismatch
	case r.Status == Success:
		return Duplicate, nil
	case r.Status == Dead:
		return Buried, nil
	case r.Status == Processing && !r.LeaseOver():
		return InProgress, nil
	default:
		return Run, nil
	}
}

// changeWaiting is changeAlone on a connection of its own, since a wait may be a
// session's setting.
func (s *Store) changeWaiting(ctx context.Context, wait time.Duration, template string, args ...any) (n int64, err error) {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	err = s.alone(func() error {
		return s.d.waiting(ctx, c, wait, func(prefix string) (err error) {
			n, err = s.changePrefixed(ctx, c, prefix, template, args...)
			return err
		})
	})
	return n, err
}
