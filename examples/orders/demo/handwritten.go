package demo

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/examples/orders/shop"
	"github.com/txmq/txmq/internal/rocketmq"
)

// What people write by hand, for comparison. Do not copy this file.

const shareCents = shop.ShareCents

// handwritten makes the tables of the two consumers below.
func handwritten(db *gorm.DB) error {
	for _, ddl := range []string{
		`CREATE TABLE naive_shares (order_no VARCHAR(32) PRIMARY KEY, cents BIGINT NOT NULL, status VARCHAR(16) NOT NULL)`,
		`CREATE TABLE plain_deliveries (id BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) NOT NULL)`,
	} {
		if err := db.Exec(ddl).Error; err != nil {
			return err
		}
	}
	return nil
}

// RunNaive is the consumer that thinks it deduplicates: it inserts the share's
// row, and a row that exists means done. When it dies after the insert, the
// share stays in PROCESSING for good: the redelivery finds the row.
func RunNaive(ctx context.Context, cfg shop.Config) error {
	db := cfg.Store.DB()
	return consume(ctx, cfg, naiveGroup(cfg), func(ctx context.Context, m *primitive.MessageExt) error {
		var paid shop.OrderPaid
		if err := json.Unmarshal(m.Body, &paid); err != nil {
			return err
		}
		fresh := db.WithContext(ctx).Exec("INSERT IGNORE INTO naive_shares VALUES (?, ?, 'PROCESSING')", paid.OrderNo, shareCents)
		if fresh.Error != nil {
			return fresh.Error
		}
		if fresh.RowsAffected == 0 {
			return nil // row exists: done
		}
		if err := pause(ctx, terms(cfg, m)); err != nil {
			return err
		}
		return db.WithContext(ctx).Exec("UPDATE naive_shares SET status = 'DONE' WHERE order_no = ?", paid.OrderNo).Error
	})
}

// RunPlain is the profit-sharing service's own work without deduplication: each
// delivery is applied.
func RunPlain(ctx context.Context, cfg shop.Config) error {
	db := cfg.Store.DB()
	return consume(ctx, cfg, cfg.ShareGroup(), func(ctx context.Context, m *primitive.MessageExt) error {
		id := m.GetProperty(txmq.PropertyEventID)
		if err := db.WithContext(ctx).Exec("INSERT INTO plain_deliveries (event_id) VALUES (?)", id).Error; err != nil {
			return err
		}
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			return shop.GiveShare(ctx, tx, m.Body, terms(cfg, m))
		})
	})
}

func naiveGroup(cfg shop.Config) string { return "naive-sharing" + cfg.Suffix }

// terms is as long as in the real service.
func terms(cfg shop.Config, m *primitive.MessageExt) time.Duration {
	if m.Topic == cfg.Topic(shop.Web) {
		return cfg.Terms / 5
	}
	return cfg.Terms
}

// consume acknowledges what handle did without an error.
func consume(ctx context.Context, cfg shop.Config, group string, handle func(context.Context, *primitive.MessageExt) error) error {
	c, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
		Broker: cfg.Broker, Group: group, Workers: 10, Logger: cfg.Logger,
		Subscriptions: []rocketmq.Subscription{{Topic: cfg.Topic(shop.Web)}, {Topic: cfg.Topic(shop.Market)}},
		Handle: func(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
			if err := handle(ctx, m); err != nil {
				cfg.Logger.WarnContext(ctx, "handler failed", slog.String("msg_id", m.MsgId), slog.Any("error", err))
				return rocketmq.Result{Kind: rocketmq.Retry, Delay: time.Second}
			}
			return rocketmq.Result{Kind: rocketmq.Ack}
		},
	})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.Close(drain)
}
