package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
	"gorm.io/plugin/dbresolver"

	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
)

func TestPlugins(t *testing.T) {
	t.Parallel()
	t.Run("B77 gorm's plugins and settings leave a handler in its transaction on the primary", func(t *testing.T) {
		t.Parallel()
		settings := map[string]gorm.Config{
			"PrepareStmt":            {PrepareStmt: true},
			"SkipDefaultTransaction": {SkipDefaultTransaction: true},
			"TranslateError":         {TranslateError: true},
			"NamingStrategy":         {NamingStrategy: schema.NamingStrategy{TablePrefix: "app_"}},
			"dbresolver":             {},
		}
		for name, cfg := range settings {
			for modeName, mode := range modes() {
				t.Run(name+" "+modeName, func(t *testing.T) {
					own := cfg
					b := setup(t, mysql.Open(testenv.MySQL(t)), &own)
					if name == "dbresolver" {
						// The replica is an empty database: a read that went there
						// would miss the table.
						replica := mysql.Open(testenv.MySQL(t))
						plugin := dbresolver.Register(dbresolver.Config{Replicas: []gorm.Dialector{replica}})
						if err := b.db.Use(plugin); err != nil {
							t.Fatal(err)
						}
						t.Cleanup(func() { closeReplica(t, b.db) })
					}
					exercise(t, b, mode)
				})
			}
		}
	})
}

func closeReplica(t *testing.T, db *gorm.DB) {
	t.Helper()
	pool, ok := db.Clauses(dbresolver.Read).Statement.ConnPool.(interface{ Close() error })
	if ok {
		_ = pool.Close()
	}
}

type soft struct {
	gorm.Model
	Name string
}

// exercise: reads see the transaction's own writes, nothing of a failed run
// stays, a duplicate runs nothing, and a soft-deleting model is only a model.
func exercise(t *testing.T, b *bundle, mode func(Func) Work) {
	t.Helper()
	ctx := t.Context()
	if err := b.db.AutoMigrate(&soft{}); err != nil {
		t.Fatal(err)
	}
	runs := 0
	c := b.consumer(t, mode(func(_ context.Context, tx *gorm.DB, d *Delivery) error {
		runs++
		if err := tx.Create(&soft{Name: d.EventID}).Error; err != nil {
			return err
		}
		var mine soft
		if err := tx.Where("name = ?", d.EventID).First(&mine).Error; err != nil {
			return fmt.Errorf("own write is not seen: %w", err)
		}
		err := tx.Transaction(func(nested *gorm.DB) error { // a savepoint
			nested.Create(&soft{Name: "nested"})
			return errors.New("undone")
		})
		if err == nil || err.Error() != "undone" {
			return fmt.Errorf("nested transaction = %w", err)
		}
		if err := tx.Session(&gorm.Session{PrepareStmt: true}).Create(&soft{Name: "prepared"}).Error; err != nil {
			return err
		}
		if err := tx.Delete(&mine).Error; err != nil {
			return err
		}
		if runs == 1 {
			return errors.New("first run fails")
		}
		return nil
	}))
	count := func() (n int64) {
		b.db.Clauses(dbresolver.Write).Unscoped().Model(&soft{}).Count(&n)
		return n
	}
	want(t, c.deliver(ctx, message("plug", "x")), rocketmq.Retry)
	if n := count(); n != 0 {
		t.Errorf("rows after a failed run = %d, want 0", n)
	}
	want(t, c.deliver(ctx, message("plug", "x")), rocketmq.Ack)
	want(t, c.deliver(ctx, message("plug", "x")), rocketmq.Ack)
	if n := count(); n != 2 || runs != 2 {
		t.Errorf("rows = %d in %d runs, want 2 in 2 (own and prepared, none nested)\n%s", n, runs, b.log())
	}
}
