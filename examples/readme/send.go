package readme

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

// region producer

// NewProducer is for main: db is the service's own *gorm.DB.
func NewProducer(ctx context.Context, db *gorm.DB, broker txmq.Broker) (*producer.Producer, error) {
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return nil, err
	}
	return producer.New(producer.Config{Store: store, Broker: broker, Group: "orders", Topics: []string{"order-paid"}})
} // then p.Start(ctx), and p.Close(ctx) at the end

// endregion

// region send

// Pay marks an order as paid and tells the others, both or neither.
func Pay(ctx context.Context, p *producer.Producer, no string, amount int64) error {
	body := fmt.Appendf(nil, `{"no":%q,"amount":%d}`, no, amount)
	m := txmq.Message{Topic: "order-paid", EventID: "pay:" + no, Body: body}
	_, err := p.SendInTransaction(ctx, m, func(tx *gorm.DB) error {
		paid := tx.Model(&Order{}).Where("no = ? AND status = 'NEW'", no).Update("status", "PAID")
		if paid.Error == nil && paid.RowsAffected == 0 {
			return errors.New("no such order to pay") // rolls back; nobody sees the message
		}
		return paid.Error
	})
	if errors.Is(err, txmq.ErrDuplicateEvent) {
		return nil // this payment has committed before, and its message is out
	}
	// nil: committed, and the message is visible or will be.
	// ErrOutcomeUnknown: neither success nor failure; p.Resolve(ctx, err) tells later.
	// Any other error: nothing was committed, nothing will be seen.
	return err
}

// endregion
