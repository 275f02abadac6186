package readme

import (
	"context"
	"encoding/json"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/model"
)

// region consumer

// NewConsumer is for main: c.Run(ctx) consumes until ctx ends.
func NewConsumer(ctx context.Context, db *gorm.DB, broker txmq.Broker) (*consumer.Consumer, error) {
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config{
		Store: store, Broker: broker, Group: "shares",
		Handlers: []consumer.Handler{{Topic: "order-paid", Do: consumer.Atomic(ShareProfit)}},
	})
}

// endregion

// region consume

// ShareProfit has one effect for each event. All it does on tx commits together
// with the consume record, or not at all.
func ShareProfit(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	var paid struct {
		No     string `json:"no"`
		Amount int64  `json:"amount"`
	}
	if err := json.Unmarshal(d.Body, &paid); err != nil {
		return consumer.Permanent(err) // DEAD, in sight: no retry mends it
	}
	if err := tx.Create(&Share{OrderNo: paid.No, Amount: paid.Amount / 10}).Error; err != nil {
		return err // rolled back, recorded, and delivered again
	}
	return tx.Model(&Order{}).Where("no = ? AND status = 'PAID'", paid.No).Update("status", "SHARING").Error
}

// endregion
