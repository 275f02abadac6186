package shop

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/jobs"
)

const (
	workers    = 10
	sweepEvery = 2 * time.Second
)

// RunShares is the profit-sharing service: it consumes paid orders until ctx
// ends. Web orders are quick, so their record is written with the work (Atomic);
// market orders take longer, so that people see who works on which (Tracked).
func RunShares(ctx context.Context, cfg Config) error {
	c, err := consumer.New(consumer.Config{
		Store: cfg.Store, Broker: cfg.Broker, Logger: cfg.Logger,
		Group: cfg.ShareGroup(),
		Handlers: []consumer.Handler{
			{Topic: cfg.Topic(Web), Tags: "paid", Do: consumer.Atomic(cfg.shareOfWeb)},
			{Topic: cfg.Topic(Market), Tags: "paid", Do: consumer.Tracked(cfg.shareOfMarket)},
		},
		Workers: workers, Lease: cfg.Lease, Deadline: cfg.Deadline,
		Backoff: consumer.Backoff{Max: 5 * time.Second},
	})
	if err != nil {
		return err
	}
	cfg.probe(c.Ready)
	return c.Run(ctx)
}

// RunJobs looks after the records: work whose worker died is set free. It can
// also run beside the consumer in one process, with an errgroup.
func RunJobs(ctx context.Context, cfg Config) error {
	r, err := jobs.New(jobs.Config{
		Store: cfg.Store, Broker: cfg.Broker, Logger: cfg.Logger,
		Sweep: jobs.SweepConfig{Every: sweepEvery}, Lease: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	cfg.probe(atWork)
	return r.Run(ctx)
}

func (c Config) shareOfWeb(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	return GiveShare(ctx, tx, d.Body, c.Terms/5)
}

func (c Config) shareOfMarket(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	return GiveShare(ctx, tx, d.Body, c.Terms)
}

// GiveShare writes the partner's share of a paid order, moves the order on, and
// adds to the balance. All in tx: it commits together, once.
func GiveShare(ctx context.Context, tx *gorm.DB, body []byte, terms time.Duration) error {
	var paid OrderPaid
	if err := json.Unmarshal(body, &paid); err != nil {
		return consumer.Permanent(err) // no retry can mend it
	}
	if err := tx.Create(&Share{OrderNo: paid.OrderNo, Cents: ShareCents}).Error; err != nil {
		return err
	}
	if err := wait(ctx, terms); err != nil {
		return err
	}
	if err := tx.Model(&Order{}).Where("no = ? AND status = ?", paid.OrderNo, Paid).Update("status", Sharing).Error; err != nil {
		return err
	}
	// Last, because every order of the partner waits for this row.
	return tx.Model(&Balance{}).Where("partner = ?", Partner).Update("cents", gorm.Expr("cents + ?", ShareCents)).Error
}
