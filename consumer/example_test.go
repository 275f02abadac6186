package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/model"
)

func openStore(ctx context.Context) (*model.Store, error) {
	db, err := gorm.Open(sqlite.Open("file::memory:?cache=shared"), &gorm.Config{})
	if err != nil {
		return nil, err
	}
	if _, err := model.Migrate(ctx, db, model.Config{}); err != nil {
		return nil, err
	}
	return model.Open(ctx, db, model.Config{})
}

func closeStore(store *model.Store) {
	if pool, err := store.DB().DB(); err == nil {
		_ = pool.Close()
	}
}

func ExampleNew() {
	store, err := openStore(context.Background()) // model.Open on the service's *gorm.DB
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeStore(store)
	c, err := consumer.New(consumer.Config{
		Store: store, Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "shares",
		Handlers: []consumer.Handler{{
			Topic: "order-paid",
			Do: consumer.Atomic(func(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error {
				return tx.Exec("INSERT INTO shares (event_id) VALUES (?)", d.EventID).Error
			}),
		}},
	})
	fmt.Println(c != nil, err) // c.Run(ctx) starts it
	// Output: true <nil>
}

func ExampleNew_wrong() {
	_, err := consumer.New(consumer.Config{Group: "shares", Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}})
	fmt.Println(err)
	// Output:
	// consumer: consumer.Config.Store is missing: want what model.Open returned, here or for each handler
	// consumer.Config.Handlers is missing: want at least one
}

func ExamplePermanent() {
	err := consumer.Permanent(errors.New("no such order"))
	fmt.Println(err)
	// Output: permanent: no such order
}
