package migrating

import (
	"context"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/model"
)

// region foreign

// OldCheck answers for halves of the old code, from the table that its listener
// kept: Foreign, in producer.Config or checker.Config.
func OldCheck(db *gorm.DB) func(*primitive.MessageExt) txmq.Verdict {
	return func(m *primitive.MessageExt) txmq.Verdict {
		var n int64
		err := db.Model(&OrderMessage{}).Where("no = ?", m.GetKeys()).Count(&n).Error
		if err == nil && n > 0 {
			return txmq.Commit
		}
		return txmq.Unknown // not Rollback: an old process may be about to commit it
	}
}

// endregion

// region listener

// NewRawProducer is the client's own producer, over txmq's transaction log. Stop
// sending, then l.Close(ctx), p.Shutdown(), and the database.
func NewRawProducer(store *model.Store, broker txmq.Broker) (p rocketmq.TransactionProducer, l *checker.Listener, err error) {
	l, err = checker.NewListener(checker.Config{Store: store, Foreign: OldCheck(store.DB()), Observe: outcome}, PayOrder)
	if err != nil {
		return nil, nil, err
	}
	stamp := func(ctx context.Context, req, reply any, next primitive.Invoker) error {
		if m, ok := req.(*primitive.Message); ok { // before each send
			if err := l.Stamp(m, "pay:"+m.GetKeys()); err != nil {
				return err // nothing was sent
			}
		}
		return next(ctx, req, reply)
	}
	p, err = rocketmq.NewTransactionProducer(l,
		producer.WithNsResolver(primitive.NewPassthroughResolver(broker.NameServers)),
		producer.WithGroupName("orders"),
		producer.WithInstanceName("orders-"+uuid.NewString()), // its own, or another client of the process gets its check-backs
		producer.WithInterceptor(stamp))
	return p, l, err
}

// PayOrder is what ExecuteLocalTransaction did. All goes through tx.
func PayOrder(tx *gorm.DB, m *primitive.Message) error {
	if err := tx.Create(&OrderMessage{No: m.GetKeys()}).Error; err != nil {
		return err // paid by the old code: its log is this table, ours has no row
	}
	return tx.Create(&Order{No: m.GetKeys()}).Error
}

// endregion

// outcome would log or count what the client can't hand to its caller.
func outcome(context.Context, txmq.Event) {}

// region eventid

// PaidEvent names an event in the same way whoever sent it: consumer.Handler's
// EventID. The old code's messages have the order's number in KEYS.
func PaidEvent(m *primitive.MessageExt) string {
	if id := m.GetProperty(txmq.PropertyEventID); id != "" {
		return id
	}
	if no := consumer.FromKey(m); no != "" {
		return "pay:" + no
	}
	return "" // DEAD, in sight
}

// endregion
