package txguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// rival is another transaction, which the server spares in a deadlock because
// it has written more. It holds row "y"; the function it returns makes it want
// row "x" too, beside the caller.
func (b *bundle) rival(t *testing.T) (want func() <-chan error) {
	t.Helper()
	var rows []item
	for i := range 60 {
		rows = append(rows, item{ID: fmt.Sprintf("r%02d", i)})
	}
	rows = append(rows, item{ID: "x"}, item{ID: "y"})
	must(t, b.db.Create(&rows).Error)
	// The pool's own transaction: nothing of it is guarded.
	tx := b.db.Session(&gorm.Session{NewDB: true}).Begin(&sql.TxOptions{Isolation: sql.LevelReadCommitted}) // no gaps
	t.Cleanup(func() { tx.Rollback() })
	must(t, tx.Exec("UPDATE items SET v = v + 1 WHERE id LIKE 'r%'").Error)
	must(t, tx.Exec("UPDATE items SET v = v + 1 WHERE id = 'y'").Error)
	return func() <-chan error {
		done := make(chan error, 1)
		go func() {
			// The limit of a second is for the guarded side: on a machine that stalls,
			// this one may wait longer until the circle closes.
			done <- errors.Join(tx.Exec("SET STATEMENT innodb_lock_wait_timeout=50 FOR UPDATE items SET v = v + 1 WHERE id = 'x'").Error,
				tx.Rollback().Error)
		}()
		return done
	}
}

// doomed are the statements that become a deadlock's victim; each swallows what
// it sees, and says whether it saw anything.
var doomed = map[string]func(tx *gorm.DB) error{
	"Exec": func(tx *gorm.DB) error { return tx.Exec("UPDATE items SET v = 9 WHERE id = 'y'").Error },
	"Update": func(tx *gorm.DB) error {
		return tx.Model(&item{}).Where("id = ?", "y").Update("v", 9).Error
	},
	"Find in the middle of its rows": func(tx *gorm.DB) error {
		return tx.Raw("SELECT * FROM items WHERE id >= 'x' ORDER BY id FOR UPDATE").Find(&[]item{}).Error
	},
	"Rows whose error nobody asks for": func(tx *gorm.DB) error {
		rows, err := tx.Raw("SELECT id FROM items WHERE id >= 'x' ORDER BY id FOR UPDATE").Rows()
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		return errors.Join(rows.Err(), rows.Close())
	},
	"Rows left after the first": func(tx *gorm.DB) error {
		rows, err := tx.Raw("SELECT id FROM items WHERE id >= 'x' ORDER BY id FOR UPDATE").Rows()
		if err != nil {
			return err
		}
		rows.Next()
		return rows.Close()
	},
	"Row": func(tx *gorm.DB) error {
		var v int
		return tx.Raw("SELECT v FROM items WHERE id = 'y' FOR UPDATE").Row().Scan(&v)
	},
	"statement prepared past gorm": func(tx *gorm.DB) error {
		stmt, err := tx.Statement.ConnPool.PrepareContext(context.Background(), "UPDATE items SET v = 9 WHERE id = 'y'")
		if err != nil {
			return err
		}
		_, err = stmt.Exec()
		return errors.Join(err, stmt.Close())
	},
	"nested transaction": func(tx *gorm.DB) error {
		return tx.Transaction(func(tx *gorm.DB) error {
			_ = tx.Exec("UPDATE items SET v = 9 WHERE id = 'y'").Error
			return nil
		})
	},
	"nested transaction that gives the error": func(tx *gorm.DB) error {
		return tx.Transaction(func(tx *gorm.DB) error { return tx.Exec("UPDATE items SET v = 9 WHERE id = 'y'").Error })
	},
	"nested transaction in the middle of rows": func(tx *gorm.DB) error {
		return tx.Transaction(func(tx *gorm.DB) error {
			_ = tx.Raw("SELECT * FROM items WHERE id >= 'x' ORDER BY id FOR UPDATE").Find(&[]item{}).Error
			return nil
		})
	},
}

func TestDeadlockIsNotSwallowed(t *testing.T) {
	onEach(t, onServers, func(t *testing.T, setup func(*testing.T) *bundle) {
		for session, in := range sessions {
			for name, statement := range doomed {
				t.Run("B35 "+session+" "+name, func(t *testing.T) {
					b := setup(t)
					want := b.rival(t)
					tx := in(b.tx.DB())
					must(t, tx.Exec("UPDATE items SET v = 5 WHERE id = 'x'").Error)
					done := want()
					_ = statement(tx) // the function does not care
					must(t, <-done)   // so the other one was not the victim
					b.refused(t, txmq.ErrTxBroken, 62)
				})
			}
		}
	})
}

// TestNothingFollows: the deadlock is the function's last statement.
func TestNothingFollowsADeadlock(t *testing.T) {
	onEach(t, onServers, func(t *testing.T, setup func(*testing.T) *bundle) {
		for name, statement := range doomed {
			t.Run("B35 "+name, func(t *testing.T) {
				b := setup(t)
				want := b.rival(t)
				tx := b.tx.DB()
				must(t, tx.Exec("UPDATE items SET v = 5 WHERE id = 'x'").Error)
				done := want()
				_ = statement(tx)
				must(t, <-done)
				isErr(t, "Commit", b.tx.Commit(t.Context()), txmq.ErrTxBroken)
				b.nothing(t, 62)
			})
		}
	})
}

func TestBrokenIsNotSwallowed(t *testing.T) {
	onEach(t, onServers, func(t *testing.T, setup func(*testing.T) *bundle) {
		for session, in := range sessions {
			t.Run("B35 "+session+" lock wait", func(t *testing.T) {
				b := setup(t)
				b.rival(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "before"}).Error)
				err := tx.Exec("UPDATE items SET v = 9 WHERE id = 'y'").Error // waits for a second
				if err == nil || !strings.Contains(err.Error(), "1205") {
					t.Errorf("UPDATE = %v, want a lock wait", err)
				}
				b.refused(t, txmq.ErrTxBroken, 62)
			})
			t.Run("B35 "+session+" lost connection", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				var id int64
				must(t, tx.Raw("SELECT CONNECTION_ID()").Scan(&id).Error)
				must(t, tx.Create(&item{ID: "before"}).Error)
				must(t, b.db.Exec(fmt.Sprint("KILL ", id)).Error)
				if err := tx.Create(&item{ID: "lost"}).Error; err == nil {
					t.Error("Create on a killed connection = nil")
				}
				b.refused(t, txmq.ErrTxBroken, 0)
			})
			t.Run("B35 "+session+" statement that was cut off", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "before"}).Error)
				if err := tx.Exec("SET STATEMENT max_statement_time=0.01 FOR UPDATE items SET v = SLEEP(1)").Error; err == nil {
					t.Error("want a time-out")
				}
				b.refused(t, txmq.ErrTxBroken, 0)
			})
			t.Run("B35 "+session+" context that ended", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "before"}).Error)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				isErr(t, "Create", tx.WithContext(ctx).Create(&item{ID: "cut"}).Error, context.Canceled)
				b.refused(t, txmq.ErrTxBroken, 0)
			})
		}
	})
}

// TestBusyIsNotSwallowed is SQLite's lock wait.
func TestBusyIsNotSwallowed(t *testing.T) {
	onEach(t, func(d database) bool { return !d.server }, func(t *testing.T, setup func(*testing.T) *bundle) {
		t.Run("B35 a database that stayed locked", func(t *testing.T) {
			b := setup(t)
			b.tx.Rollback()
			tx, err := b.s.Begin(t.Context())
			must(t, err)
			defer tx.Rollback()
			var n int
			must(t, tx.DB().Raw("SELECT COUNT(*) FROM items").Scan(&n).Error) // a reader, so far
			must(t, b.db.Create(&item{ID: "other"}).Error)
			if err := tx.DB().Create(&item{ID: "late"}).Error; err == nil || !b.s.Transient(err) {
				t.Errorf("Create on an old snapshot = %v, want busy", err)
			}
			b.tx = tx
			b.refused(t, txmq.ErrTxBroken, 1)
		})
	})
}
