package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txmq/txmq"
)

// Status of a consume record, as it stands in the table.
type Status string

// The states. SUCCESS is the end; only Retry (by a person) revives DEAD.
const (
	Processing Status = "PROCESSING"
	Success    Status = "SUCCESS"
	Fail       Status = "FAIL"
	Dead       Status = "DEAD"
)

// MaxErrorRunes is what last_error keeps of an error's text.
const MaxErrorRunes = 2000

// Position says where the message lies on the broker.
type Position struct {
	Topic       string `json:"topic"`
	BrokerName  string `json:"broker_name"`
	QueueID     int    `json:"queue_id"`
	QueueOffset int64  `json:"queue_offset"`
	MsgID       string `json:"msg_id"`
	OffsetMsgID string `json:"offset_msg_id"`
}

// ConsumeRecord is a row of t_msg_consume: how far one event got in one
// handler. Read it freely; only the transitions of this package write it.
type ConsumeRecord struct {
	ID          int64    `json:"id" gorm:"primaryKey"`
	EventID     string   `json:"event_id"`
	Consumer    string   `json:"consumer"` // the handler's name
	Status      Status   `json:"status"`
	RetryCnt    int      `json:"retry_cnt"` // runs of the handler after the first
	Version     int64    `json:"version"`   // the fencing number; rises with each change of hands
	Owner       string   `json:"owner"`     // who works on a PROCESSING row; of FAIL, whom it has lost
	LeaseUntil  Time     `json:"lease_until"`
	NextRetryAt Time     `json:"next_retry_at"` // gates jobs only; the broker waits by itself
	LastError   string   `json:"last_error"`
	PayloadHash []byte   `json:"-"`
	Position    Position `json:"position" gorm:"embedded"`
	CreatedAt   Time     `json:"created_at"`
	UpdatedAt   Time     `json:"updated_at"`
	RedrivenAt  Time     `json:"redriven_at"` // when a job last delivered it again; from then on the job does, not the broker

	// Idle is how long ago UpdatedAt is by the database's clock. It is not a
	// column.
	Idle time.Duration `json:"-" gorm:"-"`
	// Rest is how long the lease still runs by the database's clock, negative
	// when it is over, and 0 without one. It is not a column.
	Rest time.Duration `json:"-" gorm:"-"`
}

// TableName is the table's name with the default prefix; with another one, use
// db.Table(store.Table("msg_consume")).
func (ConsumeRecord) TableName() string { return DefaultPrefix + "msg_consume" }

// LeaseOver tells a PROCESSING row whose worker may be taken for dead.
func (r ConsumeRecord) LeaseOver() bool { return r.Status == Processing && r.Rest <= 0 }

// Nameless tells the DEAD row of a message that has no event ID, or has another
// body than its event ID stands for: it is a message's row, not an event's.
func (r ConsumeRecord) Nameless() bool { return r.Version == 0 }

// Lost tells a record whose last worker ended without a word: its lease was
// over, or the sweep found it so.
func (r ConsumeRecord) Lost() bool { return r.LeaseOver() || r.Status == Fail && r.Owner != "" }

// Redriven: a job delivers this event again, at the pace of next_retry_at, and a
// delivery that fails does not ask the broker for another one.
func (r ConsumeRecord) Redriven() bool { return !r.RedrivenAt.IsZero() }

// Arrival is the delivery that the record was made from.
func (r ConsumeRecord) Arrival() Arrival {
	a := Arrival{EventID: r.EventID, Consumer: r.Consumer, At: r.Position}
	copy(a.PayloadHash[:], r.PayloadHash)
	return a
}

// Arrival is a delivered message as its consume record knows it.
type Arrival struct {
	EventID     string
	Consumer    string
	PayloadHash [32]byte
	At          Position
}

// adopted tells the Arrival of a record that knows neither hash nor place.
func (a Arrival) adopted() bool {
	return a.PayloadHash == [32]byte{} && a.At == Position{} && a.EventID != "" && a.Consumer != ""
}

func (a Arrival) check() error {
	keys := [...][2]string{{"event ID", a.EventID}, {"handler name", a.Consumer}, {"topic", a.At.Topic}}
	known := len(keys)
	if a.adopted() {
		known--
	}
	return errors.Join(
		checkKeys(keys[:known]...),
		checkWidths([2]string{"broker name", a.At.BrokerName}, [2]string{"message ID", a.At.MsgID},
			[2]string{"offset message ID", a.At.OffsetMsgID}))
}

const recordColumns = `id, event_id, consumer, status, retry_cnt, version, owner, lease_until, next_retry_at,
	last_error, payload_hash, topic, broker_name, queue_id, queue_offset, msg_id, offset_msg_id,
	created_at, updated_at, redriven_at, {idle}, {rest}`

func scanRecord(scan func(...any) error) (r ConsumeRecord, err error) {
	var idle, rest sql.NullInt64
	err = scan(&r.ID, &r.EventID, &r.Consumer, &r.Status, &r.RetryCnt, &r.Version, &r.Owner, &r.LeaseUntil,
		&r.NextRetryAt, &r.LastError, &r.PayloadHash, &r.Position.Topic, &r.Position.BrokerName,
		&r.Position.QueueID, &r.Position.QueueOffset, &r.Position.MsgID, &r.Position.OffsetMsgID,
		&r.CreatedAt, &r.UpdatedAt, &r.RedrivenAt, &idle, &rest)
	r.Idle = time.Duration(idle.Int64) * time.Microsecond
	r.Rest = time.Duration(rest.Int64) * time.Microsecond
	return r, err
}

// Find reads a record, or gives txmq.ErrNotFound.
func (s *Store) Find(ctx context.Context, eventID, consumer string) (ConsumeRecord, error) {
	r, err := s.find(ctx, s.pool, eventID, consumer)
	return r, wrapOp("find", eventID, err)
}

// find uses uk_event_consumer and takes no lock.
func (s *Store) find(ctx context.Context, c conn, eventID, consumer string) (ConsumeRecord, error) {
	r, err := scanRecord(c.QueryRowContext(ctx,
		s.q("SELECT "+recordColumns+" FROM {prefix}msg_consume WHERE event_id = ? AND consumer = ?"),
		eventID, consumer).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = txmq.ErrNotFound
	}
	return r, err
}

// Filter chooses records. Zero fields do not restrict.
type Filter struct {
	Status   Status
	Consumer string
	EventID  string
	Older    time.Duration // not changed for at least so long, by the database's clock
	After    int64         // only ids above it, to page on
	Limit    int           // 1 to 1000; 0 means 100
}

// Records lists records by id. With Status an index that starts with it serves,
// else the primary key; it takes no lock.
func (s *Store) Records(ctx context.Context, f Filter) ([]ConsumeRecord, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, &txmq.FieldError{Field: "limit", Value: f.Limit, Want: "1 to 1000"}
	}
	list, err := s.records(ctx, s.pool, f)
	return list, wrapOp("list", "", err)
}

func (s *Store) records(ctx context.Context, c conn, f Filter) ([]ConsumeRecord, error) {
	where, args := []string{"id > ?"}, []any{f.After}
	add := func(cond string, arg any) { where, args = append(where, cond), append(args, arg) }
	if f.Status != "" {
		add("status = ?", string(f.Status))
	}
	if f.Consumer != "" {
		add("consumer = ?", f.Consumer)
	}
	if f.EventID != "" {
		add("event_id = ?", f.EventID)
	}
	if f.Older > 0 {
		add("updated_at <= {now+?}", -micros(f.Older))
	}
	rows, err := c.QueryContext(ctx, s.q("SELECT "+recordColumns+" FROM {prefix}msg_consume WHERE "+
		strings.Join(where, " AND ")+" ORDER BY id LIMIT ?"), append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	return scanRecords(rows)
}

func scanRecords(rows *sql.Rows) (list []ConsumeRecord, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRecord(rows.Scan)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// cut keeps the front of an error's text, in whole characters, and what the
// column's character set can hold.
func cut(err error) string {
	if err == nil {
		return ""
	}
	runes := []rune(strings.ToValidUTF8(err.Error(), "\uFFFD"))
	for i, r := range runes {
		if r > 0xFFFF {
			runes[i] = '\uFFFD' // a DSN with charset=utf8 can't send it, and then FAIL could not be written
		}
	}
	if len(runes) > MaxErrorRunes {
		runes = append(runes[:MaxErrorRunes-1], '…')
	}
	return string(runes)
}

func staleRow(op string, a Arrival) error {
	return wrapOp(op, a.EventID, fmt.Errorf("%w: the record of %q has moved", txmq.ErrLeaseLost, a.Consumer))
}
