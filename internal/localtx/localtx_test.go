package localtx_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/localtx"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// What a whole call does is tested where it is used, in producer and checker.
// Here is what only a look from inside can bring about.
func TestRun(t *testing.T) {
	db, err := gorm.Open(sqlite.Open(testenv.SQLite(t)), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	_, err = model.Migrate(t.Context(), db, model.Config{})
	must(t, err)
	store, err := model.Open(t.Context(), db, model.Config{})
	must(t, err)
	run := func(ctx context.Context, event string, fn func(tx *gorm.DB, committing *bool) error) (txmq.Verdict, any, error) {
		var committing bool
		return localtx.Call{
			Store: store, Attempt: model.Attempt{ID: "attempt of " + event, Topic: "paid", EventID: event, Group: "orders"},
			Fn: func(tx *gorm.DB) error { return fn(tx, &committing) },
			Resolve: func(context.Context, *model.Store, model.Attempt) (txmq.Verdict, error) {
				t.Error("asked what became of a COMMIT that was answered")
				return txmq.Unknown, nil
			},
			Settle: localtx.SettleLimit, Committing: &committing, Logger: slog.New(slog.DiscardHandler),
		}.Run(ctx)
	}

	t.Run("a panic of the function is a Rollback", func(t *testing.T) {
		v, panicked, err := run(t.Context(), "a", func(*gorm.DB, *bool) error { panic("no") })
		if v != txmq.Rollback || panicked != any("no") || err == nil {
			t.Errorf("Run = %v, %v, %v, want rollback and the panic", v, panicked, err)
		}
	})
	t.Run("a driver's panic once COMMIT may be sent is Unknown", func(t *testing.T) {
		v, panicked, err := run(t.Context(), "b", func(_ *gorm.DB, committing *bool) error { *committing = true; panic("driver") })
		var lost *txmq.OutcomeUnknownError
		if v != txmq.Unknown || panicked != nil || !errors.As(err, &lost) || lost.EventID != "b" {
			t.Errorf("Run = %v, %v, %v, want unknown", v, panicked, err)
		}
	})
	t.Run("a context that ends inside says so, and rolls back", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		v, _, err := run(ctx, "c", func(*gorm.DB, *bool) error { cancel(); return nil })
		if v != txmq.Rollback || !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, %v, want rollback, %v", v, err, context.Canceled)
		}
	})
	t.Run("the function's context is marked for this store", func(t *testing.T) {
		v, _, err := run(t.Context(), "d", func(tx *gorm.DB, _ *bool) error {
			if ctx := tx.Statement.Context; !localtx.Inside(ctx, store) || localtx.Inside(ctx, new(model.Store)) {
				t.Error("Inside is wrong inside")
			}
			return nil
		})
		if v != txmq.Commit || err != nil || localtx.Inside(t.Context(), store) {
			t.Errorf("Run = %v, %v, want commit, and no mark outside", v, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
