// Package shop is two small services that meet only in RocketMQ and in a
// database. The order service (pay.go) takes payments and says so in a message;
// the profit-sharing service (share.go) gives the partner a share of each paid
// order.
//
// Nothing in here keeps a second share of an order out: no unique key, no look
// at what is there already. One share for each paid order, and none for the
// others, is what txmq is for.
package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// States of an order.
const (
	New     = "NEW"     // waits for its payment
	Paid    = "PAID"    // paid, the partner has no share yet
	Sharing = "SHARING" // the partner has its share
	Refused = "REFUSED" // costs more than the shop may take
)

// Channels that orders come from. Each has a topic of its own.
const (
	Web    = "web"
	Market = "market"
)

const (
	// ShareCents is what the partner gets for an order.
	ShareCents = 30
	// Partner is whose balance grows.
	Partner = "partner"
	// CreditCents is the most an order may cost.
	CreditCents = 100_00
)

// Order is a row of the order service.
type Order struct {
	ID      int64  `gorm:"primaryKey"`
	No      string `gorm:"size:32;uniqueIndex"`
	Channel string `gorm:"size:16"`
	Cents   int64
	Status  string `gorm:"size:16;index"`
}

// Share is a row of the profit-sharing service.
type Share struct {
	ID      int64  `gorm:"primaryKey"`
	OrderNo string `gorm:"size:32;index"` // not unique, see the package comment
	Cents   int64
}

// Balance is what a partner has got.
type Balance struct {
	Partner string `gorm:"size:32;primaryKey"`
	Cents   int64
}

// Config is what a service of the shop starts with.
type Config struct {
	Store  *model.Store
	Broker txmq.Broker
	// Suffix of topics and groups, so that several shops can share a broker.
	Suffix string
	Logger *slog.Logger

	// Lease is how long a market order is its worker's without a heartbeat, and
	// Deadline is what handling one message may take.
	Lease, Deadline time.Duration
	// Terms is how long the market takes to answer for the terms of an order.
	// The web shop's are asked for in a fifth of that.
	Terms time.Duration
	// Probe is told how to ask a service whether it does its work. Default:
	// nobody asks.
	Probe func(ready func(context.Context) error)
}

// probe tells it.
func (c Config) probe(ready func(context.Context) error) {
	if c.Probe != nil {
		c.Probe(ready)
	}
}

// atWork is the answer of a service that does from its start on.
func atWork(context.Context) error { return nil }

// Topic of a channel's paid orders.
func (c Config) Topic(channel string) string { return "order-paid-" + channel + c.Suffix }

// ShareGroup is the consumer group of the profit-sharing service.
func (c Config) ShareGroup() string { return "profit-sharing" + c.Suffix }

// OrderPaid is the message's body.
type OrderPaid struct {
	OrderNo string `json:"order_no"`
	Cents   int64  `json:"cents"`
}

// PaidMessage says that the order is paid. Made twice it is the same.
func (c Config) PaidMessage(o Order) (txmq.Message, error) {
	body, err := json.Marshal(OrderPaid{OrderNo: o.No, Cents: o.Cents})
	if err != nil {
		return txmq.Message{}, fmt.Errorf("order %s: %w", o.No, err)
	}
	return txmq.Message{
		Topic: c.Topic(o.Channel), Tag: "paid", Keys: []string{o.No},
		EventID: "pay:" + o.No, // this order is paid once, whoever tries how often
		Body:    body,
	}, nil
}

// OpenDB opens the database that both services share.
func OpenDB(dsn string) (*gorm.DB, error) {
	db, err := gorm.Open(mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(workers + 4)
	pool.SetMaxIdleConns(workers + 4)
	return db, nil
}

// Migrate makes the tables. A deployment does it before the services start.
func Migrate(ctx context.Context, db *gorm.DB) error {
	if _, err := model.Migrate(ctx, db, model.Config{}); err != nil { // as txmq migrate up does
		return err
	}
	db = db.WithContext(ctx)
	if err := db.AutoMigrate(&Order{}, &Share{}, &Balance{}); err != nil {
		return fmt.Errorf("migrate the shop: %w", err)
	}
	return db.Create(&Balance{Partner: Partner}).Error
}

// wait is the time that something outside takes to answer.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
