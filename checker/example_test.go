package checker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/model"
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

	c, err := checker.New(checker.Config{Store: store, Observe: func(_ context.Context, e txmq.Event) {
		if e, ok := e.(txmq.Checked); ok {
			fmt.Println(e.EventID, e.Verdict, e.Reason)
		}
	}})
	if err != nil {
		panic(err)
	}
	half := &primitive.MessageExt{} // as the broker sends it back
	half.Topic = "order-paid"
	half.WithProperty(txmq.PropertyEventID, "pay:1001")
	half.WithProperty(txmq.PropertyAttempt, "0198c1d2-5a7e-7000-8000-000000000001")
	half.WithProperty(txmq.PropertyDatabaseID, store.DatabaseID())
	half.WithProperty(primitive.PropertyTranscationCheckTimes, "1")
	c.Check(ctx, half)
	half.WithProperty(primitive.PropertyTranscationCheckTimes, "15")
	c.Check(ctx, half)

	_, err = checker.New(checker.Config{FenceAfter: 10 * checker.DefaultInterval, MaxChecks: 10})
	fmt.Println(err)
	// Output:
	// pay:1001 unknown too young
	// pay:1001 rollback last check
	// checker.Config.Store is missing: want a *model.Store
	// checker.Config.FenceAfter is 5m0s: want less than 10 checks every 30s, or the broker discards the half first
}

// The listener is for the client's own transaction producer, which would call
// it as this example does.
func ExampleNewListener() {
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

	l, err := checker.NewListener(checker.Config{Store: store, Observe: func(_ context.Context, e txmq.Event) {
		if e, ok := e.(txmq.SendEnded); ok {
			fmt.Println(e.EventID, e.Verdict, errors.Is(e.Err, txmq.ErrDuplicateEvent))
		}
	}}, func(tx *gorm.DB, m *primitive.Message) error {
		return tx.Exec("UPDATE t_meta SET value = ? WHERE name = 'example'", m.Body).Error // the service's own statements
	})
	if err != nil {
		panic(err)
	}
	defer l.Close(ctx)
	m := primitive.NewMessage("order-paid", []byte("{}"))
	for range 2 { // the second is a duplicate
		if err := l.Stamp(m, "pay:1001"); err != nil {
			panic(err)
		}
		l.ExecuteLocalTransaction(m)
	}
	// Output:
	// pay:1001 commit false
	// pay:1001 rollback true
}
