package migrating

import (
	"context"
	"errors"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq/consumer"
)

// region dedup

// AfterDedup keeps work from what RocketMQDedupListener has consumed before.
// status gives its record of the message: CONSUMED, CONSUMING, or nothing.
func AfterDedup(status func(context.Context, *gorm.DB, *consumer.Delivery) (string, error), work consumer.Func) consumer.Func {
	return func(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
		switch old, err := status(ctx, tx, d); {
		case err != nil:
			return err
		case old == "CONSUMED":
			return consumer.Skip("consumed before the migration")
		case old != "": // its worker died, or could not mark it: perhaps done, perhaps half
			return consumer.Permanent(errors.New("half-done before the migration: " + old))
		}
		return work(ctx, tx, d)
	}
}

// DedupTable is the status from t_rocketmq_dedup in the same database;
// application is what the old listener had, often the consumer group.
func DedupTable(application string) func(context.Context, *gorm.DB, *consumer.Delivery) (string, error) {
	return func(_ context.Context, tx *gorm.DB, d *consumer.Delivery) (string, error) {
		key := DedupKey(d)
		var old struct{ MsgUniqKey, Status string }
		err := tx.Table("t_rocketmq_dedup").Select("msg_uniq_key, status").
			Where("application_name = ? AND topic = ? AND tag = ? AND msg_uniq_key = ?", application, d.Topic, d.Tag, key).
			Where("status <> 'CONSUMED' OR expire_time > ?", time.Now().UnixMilli()).
			Limit(1).Scan(&old).Error
		if err != nil || old.MsgUniqKey != key { // its collation takes "a" for "A"
			return "", err
		}
		return old.Status, nil
	}
}

// DedupKey is what dedupMessageKey gives unless it was overridden; then write
// the same here.
func DedupKey(d *consumer.Delivery) string {
	if id := d.Message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex); id != "" {
		return id
	}
	return d.Message.MsgId
}

// endregion
