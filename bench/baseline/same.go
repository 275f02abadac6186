package baseline

import (
	"context"
	"crypto/sha256"
	"database/sql"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"
)

// What follows sends the very statements that txmq sends, by hand: the peer
// where txmq's own code is to be told from the price of its statements.

const (
	insertRecord = `INSERT INTO t_msg_consume (event_id, consumer, status, retry_cnt, version, owner, lease_until,
	next_retry_at, last_error, payload_hash, topic, broker_name, queue_id, queue_offset, msg_id, offset_msg_id,
	body, properties, created_at, updated_at) VALUES (?, ?, 'SUCCESS', 0, 1, '', NULL, NULL, '', ?, ?, ?, ?, ?, ?, ?,
	NULL, NULL, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))`
	insertLog = `INSERT INTO t_tx_log (attempt, topic, event_id, fenced_event, state, route, producer_group,
	created_at, rescued_at) VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3), NULL)`
)

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// ReceiveOnce is Receive with a consume record.
func ReceiveOnce(ctx context.Context, db *gorm.DB, name, eventID string, handle Handle, m *primitive.MessageExt) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		hash := sha256.Sum256(m.Body)
		_, err := tx.Statement.ConnPool.ExecContext(ctx, insertRecord, eventID, name, hash[:], m.Topic,
			m.Queue.BrokerName, m.Queue.QueueId, m.QueueOffset, m.MsgId, m.OffsetMsgId)
		if err != nil {
			return err
		}
		return handle(ctx, tx, m)
	}, readCommitted)
}

// TransactLogged is Transact with txmq's log row.
func TransactLogged(ctx context.Context, db *gorm.DB, attempt, topic, eventID, group string, local func(tx *gorm.DB) error) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		_, err := tx.Statement.ConnPool.ExecContext(ctx, insertLog, attempt, topic, eventID, nil, "COMMITTED", "HALF", group)
		if err != nil {
			return err
		}
		return local(tx)
	}, readCommitted)
}
