package readme

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

// region service

// Serve is the consuming half of a service: handlers and jobs side by side,
// until ctx ends.
func Serve(ctx context.Context, db *gorm.DB, broker txmq.Broker, ready func()) error {
	c, err := NewConsumer(ctx, db, broker)
	if err != nil {
		return err
	}
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return err
	}
	j, err := jobs.New(jobs.Config{Store: store, Broker: broker})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) }) // nil after a drained stop
	g.Go(func() error { return j.Run(ctx) }) // any replica may run them; each tick is one replica's
	g.Go(func() error {
		if c.Ready(ctx) == nil {
			ready() // readiness for whoever routes traffic here
		}
		return nil
	})
	return g.Wait()
}

// endregion

// region external

// Notify tells another system: Do: consumer.External(Notify(client, url)). It may
// be told twice, never by two at the same time as far as leases tell; the two
// headers let it tell a repeat from news.
func Notify(client *http.Client, url string) func(context.Context, *consumer.Delivery) error {
	return func(ctx context.Context, d *consumer.Delivery) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return consumer.Permanent(err)
		}
		req.Header.Set("Idempotency-Key", d.EventID)
		req.Header.Set("Fencing-Version", strconv.FormatInt(d.Version, 10))
		resp, err := client.Do(req)
		if err != nil {
			return err // delivered again after the back-off
		}
		defer func() { _ = resp.Body.Close() }()
		switch {
		case resp.StatusCode == http.StatusGone:
			return consumer.Skip("the other side no longer wants it") // SUCCESS, with the reason
		case resp.StatusCode/100 == 4:
			return consumer.Permanent(errors.New(resp.Status)) // DEAD, in sight
		case resp.StatusCode/100 != 2:
			return errors.New(resp.Status)
		}
		return nil
	}
}

// endregion

// region aftercommit

// WithMail sends a mail once the effect is committed, and none after a failure.
// A process that dies in between sends none: for mail that must go out, write a
// row in the transaction and let another handler send it.
func WithMail(work consumer.Func, mail func(ctx context.Context, order string)) consumer.Func {
	return func(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
		if err := work(ctx, tx, d); err != nil {
			return err
		}
		d.AfterCommit(func(ctx context.Context) { mail(ctx, d.EventID) })
		return nil
	}
}

// endregion
