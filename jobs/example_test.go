package jobs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

func ExampleNew() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "txmq")
	defer os.RemoveAll(dir)
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "service.db")))
	if err != nil {
		panic(err)
	}
	if _, err := model.Migrate(ctx, db, model.Config{}); err != nil { // usually: txmq migrate up
		panic(err)
	}
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		panic(err)
	}

	// A worker claims an event, and dies.
	worked := model.Arrival{EventID: "pay:42", Consumer: "shares:order-paid", At: model.Position{Topic: "order-paid"}}
	if _, err := store.Claim(ctx, worked, "worker-1", time.Microsecond, time.Second); err != nil {
		panic(err)
	}

	j, err := jobs.New(jobs.Config{
		Store: store,
		Observe: func(_ context.Context, e txmq.Event) {
			if s, ok := e.(txmq.Swept); ok {
				fmt.Println("swept", s.EventID, "of", s.Owner)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	// A service runs j.Run(ctx) beside its consumer; a test or a person, one job.
	res, err := j.RunOnce(ctx, "sweep")
	fmt.Println(res.Done, err)

	pool, _ := db.DB()
	_ = pool.Close()
	// Output:
	// swept pay:42 of worker-1
	// 1 <nil>
}
