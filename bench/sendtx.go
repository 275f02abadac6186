package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/bench/baseline"
	"github.com/txmq/txmq/producer"
)

const senders = 8

// sendTx compares SendInTransaction with the raw transaction producer.
func sendTx(ctx context.Context, w *world, o options) (*trio, error) {
	topic, err := w.topic(ctx, "send")
	if err != nil {
		return nil, err
	}
	t := &trio{}
	db, err := w.database(ctx, "ours")
	if err != nil {
		return nil, err
	}
	store, err := db.store(ctx)
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Config{
		Store: store, Broker: txmq.Broker{NameServers: []string{w.nameServer}}, Group: w.run + "_ours", Topics: []string{topic},
	})
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	w.atEnd(func() error { return p.Close(context.Background()) })
	t.counters[0] = db.counter
	t.ours = sending("txmq", o.round, func(ctx context.Context, n int64) error {
		pm := newPayment(n, fmt.Sprintf("%s:%d", w.run, n))
		_, err := p.SendInTransaction(ctx, txmq.Message{Topic: topic, EventID: pm.Ref, Keys: []string{pm.Ref}, Body: pm.body()},
			func(tx *gorm.DB) error { return pay(tx, pm) })
		return err
	})
	for i, name := range []string{"peer", "control"} {
		s, db, err := w.rawSender(ctx, name)
		if err != nil {
			return nil, err
		}
		t.counters[1+i] = db.counter
		*[]*side{&t.peer, &t.control}[i] = sending(name, o.round, func(ctx context.Context, n int64) error {
			pm := newPayment(n, fmt.Sprintf("%s:%d", w.run, n))
			m := primitive.NewMessage(topic, pm.body()).WithKeys([]string{pm.Ref})
			return s.Send(ctx, m, func(ctx context.Context, tx *sql.Tx) error { return paySQL(ctx, tx, pm) })
		})
	}
	return t, nil
}

func (w *world) rawSender(ctx context.Context, name string) (*baseline.Sender, *database, error) {
	db, err := w.database(ctx, name, baseline.Schema)
	if err != nil {
		return nil, nil, err
	}
	s, err := baseline.StartSender(db.pool, w.nameServer, w.run+"_"+name)
	if err != nil {
		return nil, nil, err
	}
	w.atEnd(s.Close)
	return s, db, nil
}

// sending lets all senders send for the length of a round.
func sending(name string, length time.Duration, send func(ctx context.Context, n int64) error) side {
	var number atomic.Int64
	return side{name, func(ctx context.Context, m *meter) error {
		from := number.Load()
		g, ctx := errgroup.WithContext(ctx)
		m.start()
		end := time.Now().Add(length)
		for range senders {
			g.Go(func() error {
				for time.Now().Before(end) {
					if err := send(ctx, number.Add(1)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		m.stop(int(number.Load() - from))
		return err
	}}
}
