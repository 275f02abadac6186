package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	rawconsumer "github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/bench/baseline"
	"github.com/txmq/txmq/bench/dbcount"
	"github.com/txmq/txmq/bench/stub"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

// stubbed is a pool on the stub, which answers what model.Open asks.
func (w *world) stubbed() (*gorm.DB, *dbcount.Counter, error) {
	c := new(dbcount.Counter)
	pool := sql.OpenDB(c.Wrap(&stub.Connector{Answers: []stub.Answer{
		{Part: "VERSION()", Row: []driver.Value{"10.11.11-MariaDB", time.Now().UTC(), int64(50)}},
		{Part: "autocommit", Row: []driver.Value{int64(1), "REPEATABLE-READ"}},
		{Part: "version_id", Row: []driver.Value{int64(1 << 30)}},
		{Part: "SELECT UTC_TIMESTAMP(3)", Row: []driver.Value{time.Now().UTC()}},
		{Part: "t_meta", Row: []driver.Value{"stub"}},
	}}))
	w.atEnd(pool.Close)
	db, err := openGorm(pool)
	return db, c, err
}

// nearbyBroker lets a consumer or producer run without a broker.
var nearbyBroker = txmq.Broker{NameServers: []string{"127.0.0.1:1"}}

// overheadReceive counts the way of a delivery in Atomic mode, from the client's
// callback and back, against the same statements by hand.
func overheadReceive(ctx context.Context, w *world, o options) (*trio, error) {
	t := &trio{}
	for i, s := range []*side{&t.ours, &t.peer, &t.control} {
		db, counter, err := w.stubbed()
		if err != nil {
			return nil, err
		}
		t.counters[i] = counter
		var handle func(context.Context, ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error)
		if i == 0 {
			handle, err = w.nearbyConsumer(ctx, db)
		} else {
			handle = byHand(db)
		}
		if err != nil {
			return nil, err
		}
		*s = side{[]string{"txmq", "peer", "control"}[i], func(ctx context.Context, m *meter) error {
			return receiving(ctx, m, o.calls, handle)
		}}
	}
	return t, nil
}

func (w *world) nearbyConsumer(ctx context.Context, db *gorm.DB) (
	handle func(context.Context, ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error), err error,
) {
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return nil, err
	}
	c, err := consumer.New(consumer.Config{
		Store: store, Broker: nearbyBroker, Group: "bench",
		Handlers: []consumer.Handler{{
			Topic: "bench",
			Do:    consumer.Atomic(func(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error { return book(tx, d.Body) }),
		}},
	})
	if err != nil {
		return nil, err
	}
	in := &rocketmq.StandIn{Consume: func(f func(context.Context, ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error)) { handle = f }}
	err = w.consume(in.Context(ctx), c)
	return handle, err
}

func byHand(db *gorm.DB) func(context.Context, ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error) {
	book := func(_ context.Context, tx *gorm.DB, m *primitive.MessageExt) error { return book(tx, m.Body) }
	return func(ctx context.Context, ms ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error) {
		m := ms[0]
		if err := baseline.ReceiveOnce(ctx, db, "bench:bench", m.GetProperty(txmq.PropertyEventID), book, m); err != nil {
			return rawconsumer.ConsumeRetryLater, nil //nolint:nilerr // the client takes no error
		}
		return rawconsumer.ConsumeSuccess, nil
	}
}

func receiving(ctx context.Context, m *meter, calls int,
	handle func(context.Context, ...*primitive.MessageExt) (rawconsumer.ConsumeResult, error),
) error {
	messages := make([]*primitive.MessageExt, calls)
	contexts := make([]context.Context, 0, calls)
	for i := range messages {
		pm := newPayment(int64(i), fmt.Sprintf("bench:%d", i))
		messages[i] = &primitive.MessageExt{
			MsgId: "7F0000010000000000000000", OffsetMsgId: "7F00000100002A9F0000000000000001", QueueOffset: int64(i),
		}
		messages[i].Topic, messages[i].Body = "bench", pm.body()
		messages[i].Queue = &primitive.MessageQueue{Topic: "bench", BrokerName: "broker-a"}
		messages[i].WithProperty(txmq.PropertyEventID, pm.Ref)
		contexts = append(contexts, asClient(ctx))
	}
	m.start()
	for i := range messages {
		if r, err := handle(contexts[i], messages[i]); err != nil || r != rawconsumer.ConsumeSuccess {
			return fmt.Errorf("delivery answered %d: %w", r, err)
		}
	}
	m.stop(calls)
	return nil
}

// asClient is the context that the client gives its callback.
func asClient(ctx context.Context) context.Context {
	return primitive.WithConcurrentlyCtx(ctx, &primitive.ConsumeConcurrentlyContext{})
}

// overheadSend counts SendInTransaction in the same way.
func overheadSend(ctx context.Context, w *world, o options) (*trio, error) {
	t := &trio{}
	for i, s := range []*side{&t.ours, &t.peer, &t.control} {
		db, counter, err := w.stubbed()
		if err != nil {
			return nil, err
		}
		t.counters[i] = counter
		send := sendByHand(db)
		if i == 0 {
			if send, err = w.nearbyProducer(ctx, db); err != nil {
				return nil, err
			}
		}
		*s = side{[]string{"txmq", "peer", "control"}[i], func(ctx context.Context, m *meter) error {
			m.start()
			for n := range o.calls {
				if err := send(ctx, newPayment(int64(n), "bench")); err != nil {
					return err
				}
			}
			m.stop(o.calls)
			return nil
		}}
	}
	return t, nil
}

func (w *world) nearbyProducer(ctx context.Context, db *gorm.DB) (func(context.Context, payment) error, error) {
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Config{Store: store, Broker: nearbyBroker, Group: "bench", Topics: []string{"bench"}})
	if err != nil {
		return nil, err
	}
	in := &rocketmq.StandIn{Send: sendNearby}
	if err := p.Start(in.Context(ctx)); err != nil {
		return nil, err
	}
	w.atEnd(func() error { return p.Close(context.Background()) })
	return func(ctx context.Context, pm payment) error {
		_, err := p.SendInTransaction(ctx, txmq.Message{Topic: "bench", EventID: pm.Ref, Keys: []string{pm.Ref}, Body: pm.body()},
			func(tx *gorm.DB) error { return pay(tx, pm) })
		return err
	}, nil
}

// sendNearby is what the client does, without a broker.
func sendNearby(_ context.Context, l primitive.TransactionListener, m *primitive.Message) (*primitive.TransactionSendResult, error) {
	return &primitive.TransactionSendResult{SendResult: &primitive.SendResult{}, State: l.ExecuteLocalTransaction(m)}, nil
}

func sendByHand(db *gorm.DB) func(context.Context, payment) error {
	l := &oneCall{db: db}
	return func(ctx context.Context, pm payment) error {
		m := primitive.NewMessage("bench", pm.body()).WithKeys([]string{pm.Ref})
		m.WithProperty("ATTEMPT", uuid.NewString())
		l.ctx, l.pm = ctx, pm
		if _, err := sendNearby(ctx, l, m); err != nil {
			return err
		}
		return l.err
	}
}

// oneCall is a listener for one sender.
type oneCall struct {
	db  *gorm.DB
	ctx context.Context
	pm  payment
	err error
}

func (l *oneCall) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	l.err = baseline.TransactLogged(l.ctx, l.db, m.GetProperty("ATTEMPT"), m.Topic, l.pm.Ref, "bench",
		func(tx *gorm.DB) error { return pay(tx, l.pm) })
	if l.err != nil {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func (l *oneCall) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.UnkonwnState
}
