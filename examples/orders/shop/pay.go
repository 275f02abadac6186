package shop

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/producer"
)

const (
	payments = 8 // at a time
	payEvery = 50 * time.Millisecond
	// bankTakes is how long the bank takes to answer.
	bankTakes = 20 * time.Millisecond
)

var (
	errOverCredit = errors.New("order costs more than the shop may take")
	errNotNew     = errors.New("order is not NEW any more")
)

// RunOrders is the order service: it takes the payment of each NEW order until
// ctx ends.
func RunOrders(ctx context.Context, cfg Config) error {
	p, err := producer.New(producer.Config{
		Store: cfg.Store, Broker: cfg.Broker, Logger: cfg.Logger,
		Group:  "order-service" + cfg.Suffix,
		Topics: []string{cfg.Topic(Web), cfg.Topic(Market)},
		// As the broker of scripts/services is set up: it checks every second.
		CheckInterval: time.Second, MaxChecks: 15, FenceAfter: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	cfg.probe(atWork)
	for ctx.Err() == nil {
		if n := payWaiting(ctx, cfg, p); n == 0 {
			_ = wait(ctx, payEvery) // its error is ctx's
		}
	}
	return p.Close(context.WithoutCancel(ctx))
}

// payWaiting pays some NEW orders and says how many it saw. What fails stays
// NEW, and is seen again.
func payWaiting(ctx context.Context, cfg Config, p *producer.Producer) int {
	var orders []Order
	if err := cfg.Store.DB().WithContext(ctx).Where("status = ?", New).Order("id").Limit(20).Find(&orders).Error; err != nil {
		cfg.Logger.WarnContext(ctx, "orders not read", slog.Any("error", err))
		return 0
	}
	var group errgroup.Group
	group.SetLimit(payments)
	for _, o := range orders {
		group.Go(func() error {
			if err := pay(ctx, cfg, p, o); err != nil {
				cfg.Logger.WarnContext(ctx, "order not paid", slog.String("order", o.No), slog.Any("error", err))
			}
			return nil
		})
	}
	_ = group.Wait() // no function of it returns an error
	return len(orders)
}

// pay pays one order. The message becomes visible if and only if the function's
// transaction commits, whatever dies in between.
func pay(ctx context.Context, cfg Config, p *producer.Producer, o Order) error {
	m, err := cfg.PaidMessage(o)
	if err != nil {
		return err
	}
	_, err = p.SendInTransaction(ctx, m, func(tx *gorm.DB) error {
		paid := tx.Model(&Order{}).Where("no = ? AND status = ?", o.No, New).Update("status", Paid)
		if paid.Error != nil {
			return paid.Error
		}
		if paid.RowsAffected == 0 {
			return errNotNew
		}
		if err := wait(ctx, bankTakes); err != nil {
			return err
		}
		if o.Cents > CreditCents {
			return errOverCredit // PAID is undone, and no message is seen
		}
		return nil
	})
	switch {
	case errors.Is(err, errOverCredit):
		return cfg.Store.DB().WithContext(ctx).Model(&Order{}).
			Where("no = ? AND status = ?", o.No, New).Update("status", Refused).Error
	case errors.Is(err, txmq.ErrDuplicateEvent):
		return nil // an earlier call has paid it
	default:
		// With txmq.ErrOutcomeUnknown the order may be PAID; the next look at the
		// table tells. A request's handler would call p.Resolve.
		return err
	}
}
