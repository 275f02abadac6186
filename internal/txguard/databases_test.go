package txguard_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// item is the function's own table.
type item struct {
	ID string `gorm:"primaryKey;size:64"`
	V  int
}

// database is one flavour of a real database under the guard.
type database struct {
	name    string
	server  bool // two transactions can be open on rows of one table
	multi   bool // the driver sends several statements at once
	open    func(testing.TB) gorm.Dialector
	prepare bool
	more    func(*gorm.Config)
}

func databases() []database {
	maria := func(params ...string) func(testing.TB) gorm.Dialector {
		return func(tb testing.TB) gorm.Dialector {
			return mysql.Open(testenv.MySQL(tb, append(params, "innodb_lock_wait_timeout=1")...))
		}
	}
	lite := func(tb testing.TB) gorm.Dialector {
		return sqlite.Open(testenv.SQLite(tb, "_pragma=busy_timeout(50)", "_pragma=synchronous(OFF)"))
	}
	return []database{
		{name: "mariadb", server: true, open: maria()},
		{name: "mariadb, several statements at once", server: true, multi: true, open: maria("multiStatements=true")},
		{name: "mariadb, no interpolateParams", server: true, open: maria("interpolateParams=false")},
		{name: "mariadb, PrepareStmt", server: true, prepare: true, open: maria()},
		{name: "mariadb, TranslateError and SkipDefaultTransaction", server: true, open: maria(), more: func(c *gorm.Config) {
			c.TranslateError, c.SkipDefaultTransaction = true, true
		}},
		{name: "sqlite", multi: true, open: lite},
		{name: "sqlite, PrepareStmt", prepare: true, open: lite},
	}
}

// bundle is a database with one transaction of ours in it, an event applied.
type bundle struct {
	database
	db *gorm.DB
	s  *model.Store
	tx *model.Tx
}

// onEach runs do on each database, each in its own and all side by side: most of
// the time goes by in waits for locks.
func onEach(t *testing.T, only func(database) bool, do func(*testing.T, func(*testing.T) *bundle)) {
	t.Helper()
	t.Parallel()
	var wg sync.WaitGroup
	for _, d := range databases() {
		if only != nil && !only(d) {
			continue
		}
		wg.Go(func() {
			t.Run(d.name, func(t *testing.T) {
				cfg := &gorm.Config{Logger: logger.Discard, PrepareStmt: d.prepare}
				if d.more != nil {
					d.more(cfg)
				}
				db, err := gorm.Open(d.open(t), cfg)
				if err != nil {
					t.Fatal(err)
				}
				pool, err := db.DB()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = pool.Close() })
				if _, err := model.Migrate(t.Context(), db, model.Config{}); err != nil {
					t.Fatal(err)
				}
				must(t, db.Exec("CREATE TABLE items (id VARCHAR(64) PRIMARY KEY, v BIGINT NOT NULL)").Error)
				s, err := model.Open(t.Context(), db, model.Config{})
				if err != nil {
					t.Fatal(err)
				}
				do(t, func(t *testing.T) *bundle { return setup(t, d, db, s) })
			})
		})
	}
	wg.Wait()
}

func onServers(d database) bool { return d.server }

func setup(t *testing.T, d database, db *gorm.DB, s *model.Store) *bundle {
	t.Helper()
	must(t, db.Exec("DELETE FROM items").Error)
	must(t, db.Exec("DELETE FROM t_msg_consume").Error)
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Rollback)
	c, err := tx.Apply(t.Context(), arrival("e"), time.Second)
	if err != nil || c.Decision != model.Run {
		t.Fatal(c, err)
	}
	return &bundle{database: d, db: db, s: s, tx: tx}
}

func arrival(event string) model.Arrival {
	return model.Arrival{EventID: event, Consumer: "c", At: model.Position{Topic: "t"}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s = %v, want %v", what, err, target)
	}
}

// rows counts what is committed: everybody's items, and the event's record.
func (b *bundle) rows(t *testing.T) (items, records int64) {
	t.Helper()
	must(t, b.db.Model(&item{}).Count(&items).Error)
	must(t, b.db.Table("t_msg_consume").Count(&records).Error)
	return items, records
}

// refused checks that nothing more runs, that Commit says why, and that nothing
// is committed but what was there before.
func (b *bundle) refused(t *testing.T, why error, before int64) {
	t.Helper()
	tx := b.tx.DB()
	isErr(t, "Exec afterwards", tx.Exec("INSERT INTO items VALUES ('later', 1)").Error, why)
	isErr(t, "Create afterwards", tx.Create(&item{ID: "later-2"}).Error, why)
	isErr(t, "Find afterwards", tx.Find(&[]item{}).Error, why)
	isErr(t, "prepared Exec afterwards", tx.Session(&gorm.Session{PrepareStmt: true}).Exec("INSERT INTO items VALUES ('later-3', 1)").Error, why)
	_, err := tx.Raw("SELECT id FROM items").Rows()
	isErr(t, "Rows afterwards", err, why)
	var id string
	if err := tx.Raw("SELECT id FROM items").Row().Scan(&id); err == nil {
		t.Error("Row afterwards = nil, want an error")
	}
	if err := tx.Session(&gorm.Session{PrepareStmt: true}).Raw("SELECT id FROM items WHERE 1 = 1").Row().Scan(&id); err == nil {
		t.Error("prepared Row afterwards = nil, want an error")
	}
	// Last, since gorm keeps the error of a savepoint on the handle.
	isErr(t, "nested transaction afterwards", tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&item{ID: "later-4"}).Error }), why)
	isErr(t, "Commit", b.tx.Commit(t.Context()), why)
	b.nothing(t, before)
}

func (b *bundle) nothing(t *testing.T, before int64) {
	t.Helper()
	if items, records := b.rows(t); items != before || records != 0 {
		t.Errorf("%d items and %d records are committed, want %d and 0", items, records, before)
	}
}

// committed checks that Commit works, and the items that are there then.
func (b *bundle) committed(t *testing.T, want ...string) {
	t.Helper()
	must(t, b.tx.Commit(t.Context()))
	var got []string
	must(t, b.db.Model(&item{}).Order("id").Pluck("id", &got).Error)
	if len(got) != len(want) {
		t.Fatalf("items = %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("items = %v, want %v", got, want)
		}
	}
	if _, err := b.s.Find(t.Context(), "e", "c"); err != nil {
		t.Errorf("the record: %v", err)
	}
}

// Two ways to run a statement: as the store's db does, and prepared in a
// session of the function's own.
var sessions = map[string]func(*gorm.DB) *gorm.DB{
	"plain":    func(tx *gorm.DB) *gorm.DB { return tx },
	"prepared": func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{PrepareStmt: true}) },
}

func TestWorkIsCommitted(t *testing.T) {
	onEach(t, nil, func(t *testing.T, setup func(*testing.T) *bundle) {
		for name, session := range sessions {
			t.Run(name, func(t *testing.T) {
				t.Run("reads and writes of every kind", func(t *testing.T) { work(t, setup(t), session) })
				t.Run("a duplicate key that is swallowed is the function's to judge", func(t *testing.T) {
					b := setup(t)
					tx := session(b.tx.DB())
					must(t, tx.Create(&item{ID: "a"}).Error)
					for range 2 {
						if err := tx.Create(&item{ID: "a"}).Error; err == nil {
							t.Error("second Create = nil, want a duplicate key")
						}
						if err := tx.Exec("INSERT INTO items VALUES ('a', 2)").Error; err == nil {
							t.Error("second INSERT = nil, want a duplicate key")
						}
					}
					must(t, tx.Create(&item{ID: "b"}).Error)
					b.committed(t, "a", "b")
				})
				t.Run("errors in the text are too", func(t *testing.T) {
					b := setup(t)
					tx := session(b.tx.DB())
					if err := tx.Exec("UPDATE no_such_table SET a = 1").Error; err == nil {
						t.Error("want an error")
					}
					if err := tx.First(&item{}, "id = ?", "none").Error; !errors.Is(err, gorm.ErrRecordNotFound) {
						t.Errorf("First = %v", err)
					}
					must(t, tx.Create(&item{ID: "a"}).Error)
					b.committed(t, "a")
				})
				t.Run("nested transactions and savepoints", func(t *testing.T) { nested(t, setup(t), session) })
			})
		}
	})
}

func work(t *testing.T, b *bundle, session func(*gorm.DB) *gorm.DB) {
	tx := session(b.tx.DB())
	must(t, tx.Create(&[]item{{ID: "a", V: 1}, {ID: "b", V: 2}, {ID: "c", V: 3}}).Error)
	must(t, tx.Model(&item{}).Where("id = ?", "a").Update("v", 10).Error)
	must(t, tx.Delete(&item{ID: "b"}).Error)
	must(t, tx.Save(&item{ID: "d", V: 4}).Error)
	var sum int
	must(t, tx.Model(&item{}).Select("SUM(v)").Scan(&sum).Error)
	if sum != 17 {
		t.Errorf("sum = %d, want 17: what was written in this transaction", sum)
	}
	query := "SELECT id FROM items ORDER BY id"
	if b.server {
		query += " FOR UPDATE"
	}
	for range 2 { // the second time it is prepared already
		rows, err := tx.Raw(query).Rows()
		must(t, err)
		var n int
		for rows.Next() {
			n++
		}
		must(t, errors.Join(rows.Err(), rows.Close()))
		var id string
		must(t, tx.Raw(query+" ").Row().Scan(&id))
		if n != 3 || id != "a" {
			t.Errorf("%d rows, first %q, want 3, a", n, id)
		}
	}
	b.committed(t, "a", "c", "d")
}

func nested(t *testing.T, b *bundle, session func(*gorm.DB) *gorm.DB) {
	errOwn := errors.New("changed my mind")
	tx := session(b.tx.DB())
	must(t, tx.Create(&item{ID: "outer"}).Error)
	must(t, tx.Transaction(func(tx *gorm.DB) error {
		must(t, tx.Create(&item{ID: "kept"}).Error)
		isErr(t, "inner", tx.Transaction(func(tx *gorm.DB) error {
			must(t, tx.Create(&item{ID: "lost"}).Error)
			return errOwn
		}), errOwn)
		if b.server { // a guard's savepoint among the function's own
			must(t, tx.Raw("SELECT id FROM items FOR UPDATE").Scan(&[]string{}).Error)
		}
		return nil
	}))
	must(t, tx.SavePoint("mine").Error)
	must(t, tx.Create(&item{ID: "lost too"}).Error)
	if b.server {
		must(t, tx.Raw("SELECT id FROM items FOR UPDATE").Scan(&[]string{}).Error)
	}
	must(t, tx.RollbackTo("mine").Error)
	must(t, tx.Create(&item{ID: "x"}).Error)
	b.committed(t, "kept", "outer", "x")
}

// TestPluginsSeeATransaction: what asks for gorm.TxCommitter, as dbresolver
// does, finds one, and so keeps every statement on it.
func TestPluginsSeeATransaction(t *testing.T) {
	onEach(t, nil, func(t *testing.T, setup func(*testing.T) *bundle) {
		b := setup(t)
		var pools int
		look := func(db *gorm.DB) {
			if db.Statement.Context != t.Context() {
				return // another test's
			}
			pools++
			if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); !ok {
				t.Errorf("pool %T is no TxCommitter", db.Statement.ConnPool)
			}
		}
		must(t, errors.Join(
			b.db.Callback().Query().Before("gorm:query").Register("test:look", look),
			b.db.Callback().Create().Before("gorm:create").Register("test:look", look),
			b.db.Callback().Raw().Before("gorm:raw").Register("test:look", look),
			b.db.Callback().Row().Before("gorm:row").Register("test:look", look)))
		tx := b.tx.DB()
		for _, session := range sessions {
			must(t, session(tx).Exec("UPDATE items SET v = 0").Error)
			must(t, session(tx).Find(&[]item{}).Error)
		}
		must(t, tx.Create(&item{ID: "a"}).Error)
		var n int
		must(t, tx.Raw("SELECT COUNT(*) FROM items").Row().Scan(&n))
		if pools != 6 || n != 1 {
			t.Errorf("looked at %d statements, found %d items, want 6, 1", pools, n)
		}
		if _, err := tx.DB(); err == nil {
			t.Error("DB() of the transaction gives a pool, and a way out of it")
		}
		must(t, b.tx.Commit(t.Context()))
		isErr(t, "after the commit", tx.Exec("UPDATE items SET v = 0").Error, txmq.ErrTxMisused)
	})
}
