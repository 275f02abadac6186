// Package baseline is what txmq is measured against: the raw client with
// transactions and SQL written by hand, as a good engineer does who knows
// database and client but has no toolkit. It keeps fewer promises: no fence, no
// database ID, no guard, no deduplication.
package baseline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Schema is the log that the listener of Sender keeps: one row for each
// transaction, found by its key.
const Schema = `CREATE TABLE sent (
	tx_id      VARBINARY(64) NOT NULL PRIMARY KEY,
	created_at DATETIME(3)   NOT NULL
) ENGINE = InnoDB`

// Sender sends transactional messages with the raw client. Safe for concurrent
// use.
type Sender struct {
	client   client
	listener *listener
}

type client interface {
	Start() error
	Shutdown() error
	SendMessageInTransaction(context.Context, *primitive.Message) (*primitive.TransactionSendResult, error)
}

// StartSender connects. Closing is the caller's.
func StartSender(db *sql.DB, nameServer, group string) (*Sender, error) {
	l := &listener{db: db}
	c, err := producer.NewTransactionProducer(l,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(3*time.Second))
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return &Sender{client: c, listener: l}, nil
}

// Local is a local transaction's own work.
type Local func(ctx context.Context, tx *sql.Tx) error

// ErrRolledBack is Send's when the local transaction did not commit for a reason
// that has no error.
var ErrRolledBack = errors.New("rolled back")

// Send sends m, whose key names the transaction, with local's effect.
func (s *Sender) Send(ctx context.Context, m *primitive.Message, local Local) error {
	c := &call{ctx: ctx, local: local}
	s.listener.calls.Store(m, c)
	defer s.listener.calls.Delete(m)
	res, err := s.client.SendMessageInTransaction(ctx, m)
	switch {
	case err != nil:
		return err
	case c.err != nil:
		return c.err
	case res.State != primitive.CommitMessageState:
		return fmt.Errorf("%w: state %d", ErrRolledBack, res.State)
	}
	return nil
}

// Close disconnects.
func (s *Sender) Close() error { return s.client.Shutdown() }

type call struct {
	ctx   context.Context
	local Local
	err   error
}

// listener finds the call of a message by its pointer, which is the caller's.
type listener struct {
	db    *sql.DB
	calls sync.Map // *primitive.Message -> *call
}

// ExecuteLocalTransaction is the client's name for it.
func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	v, _ := l.calls.Load(m)
	c, ok := v.(*call)
	if !ok {
		return primitive.UnkonwnState
	}
	c.err = Transact(c.ctx, l.db, m.GetKeys(), c.local)
	if c.err != nil {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

// CheckLocalTransaction answers by the log row.
func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	var one int
	err := l.db.QueryRow("SELECT 1 FROM sent WHERE tx_id = ?", m.GetKeys()).Scan(&one) //nolint:noctx // the client gives none
	switch {
	case err == nil:
		return primitive.CommitMessageState
	case errors.Is(err, sql.ErrNoRows):
		return primitive.RollbackMessageState
	default:
		return primitive.UnkonwnState
	}
}

// Transact runs local and writes the log row, in one transaction.
func Transact(ctx context.Context, db *sql.DB, txID string, local Local) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // ErrTxDone after the commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO sent (tx_id, created_at) VALUES (?, UTC_TIMESTAMP(3))", txID); err != nil {
		return err
	}
	if err := local(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
