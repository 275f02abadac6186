package producer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "txmq")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "orders.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	if pool, err := db.DB(); err == nil {
		defer pool.Close()
	}
	if _, err := model.Migrate(ctx, db, model.Config{}); err != nil {
		panic(err)
	}
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		panic(err)
	}

	p, err := producer.New(producer.Config{
		Store:  store,
		Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}},
		Group:  "orders",
		Topics: []string{"order-paid"},
	})
	if err != nil {
		panic(err)
	}
	defer p.Close(ctx)

	pay := func(tx *gorm.DB) error {
		return tx.Exec("UPDATE orders SET status = 'PAID' WHERE no = ?", "1001").Error
	}
	m := txmq.Message{Topic: "order-paid", EventID: "pay:1001", Body: []byte(`{"no":"1001"}`)}
	_, err = p.SendInTransaction(ctx, m, pay) // before p.Start(ctx)
	fmt.Println(err)
	fmt.Println(errors.Is(err, txmq.ErrNotStarted))

	m.DelayLevel = 3
	_, err = p.SendInTransaction(ctx, m, pay)
	fmt.Println(err)
	// Output:
	// txmq: send "pay:1001": not started
	// true
	// txmq: send "pay:1001": txmq.Message.DelayLevel is 3: want 0: a transactional message can't be delayed
}

func ExampleNewSender() {
	ctx := context.Background()
	s, err := producer.NewSender(producer.SenderConfig{
		Broker:  txmq.Broker{NameServers: []string{"127.0.0.1:9876"}},
		Group:   "orders-plain",
		Retries: 5,
	})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)

	m := txmq.Message{Topic: "order-viewed", EventID: "view:1001:7", ShardingKey: "1001", Body: []byte(`{"no":"1001"}`)}
	_, err = s.Send(ctx, m) // before s.Start(ctx)
	fmt.Println(err)
	fmt.Println(errors.Is(err, txmq.ErrNotStarted), errors.Is(err, txmq.ErrMayBeStored))

	m.DelayLevel = 19
	_, err = s.Send(ctx, m)
	fmt.Println(err)
	// Output:
	// txmq: send "view:1001:7": not started
	// true false
	// txmq: send "view:1001:7": txmq.Message.DelayLevel is 19: want 0 to 18
}
