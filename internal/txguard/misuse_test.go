package txguard_test

import (
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

func TestEndingItIsMisuse(t *testing.T) {
	onEach(t, nil, func(t *testing.T, setup func(*testing.T) *bundle) {
		for session, in := range sessions {
			for name, end := range map[string]func(tx *gorm.DB) error{
				"COMMIT":   func(tx *gorm.DB) error { return tx.Commit().Error },
				"ROLLBACK": func(tx *gorm.DB) error { return tx.Rollback().Error },
			} {
				t.Run("B75 "+session+" "+name, func(t *testing.T) {
					b := setup(t)
					tx := in(b.tx.DB())
					must(t, tx.Create(&item{ID: "before"}).Error)
					isErr(t, name, end(tx), txmq.ErrTxMisused)
					if err := b.tx.Err(); err == nil || !strings.Contains(err.Error(), name) {
						t.Errorf("Err = %v, want %s named", err, name)
					}
					b.refused(t, txmq.ErrTxMisused, 0)
				})
			}
			t.Run("B75 "+session+" Begin inside is refused, and harms nothing", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				inner := tx.Begin()
				if inner.Error == nil {
					t.Error("Begin = nil, want an error")
				}
				must(t, tx.Create(&item{ID: "a"}).Error)
				b.committed(t, "a")
			})
			t.Run("B75 "+session+" use after returning", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "a"}).Error)
				must(t, b.tx.Close(t.Context()))
				isErr(t, "Create", tx.Create(&item{ID: "late"}).Error, txmq.ErrTxMisused)
				b.refused(t, txmq.ErrTxMisused, 0)
			})
			t.Run("B75 "+session+" use after the commit", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "a"}).Error)
				b.committed(t, "a")
				isErr(t, "Create", tx.Create(&item{ID: "late"}).Error, txmq.ErrTxMisused)
				isErr(t, "Commit", tx.Commit().Error, txmq.ErrTxMisused)
				isErr(t, "Find", tx.Find(&[]item{}).Error, txmq.ErrTxMisused)
				if items, _ := b.rows(t); items != 1 {
					t.Errorf("%d items, want 1", items)
				}
			})
		}
	})
}

func TestDDLIsMisuse(t *testing.T) {
	onEach(t, nil, func(t *testing.T, setup func(*testing.T) *bundle) {
		for session, in := range sessions {
			for statement, kind := range map[string]string{
				"CREATE TABLE made (id INT)":              "CREATE",
				"TRUNCATE TABLE items":                    "TRUNCATE",
				"COMMIT":                                  "COMMIT",
				"BEGIN":                                   "BEGIN",
				"/*!50000 COMMIT */":                      "executable comment",
				"/*M! TRUNCATE TABLE items */":            "executable comment",
				"SET autocommit = 1":                      "AUTOCOMMIT",
				"DROP TABLE items":                        "DROP",
				"-- tidy up\nALTER TABLE items ADD w INT": "ALTER",
			} {
				t.Run("B81 "+session+" "+strings.Fields(statement)[0]+" "+kind, func(t *testing.T) {
					b := setup(t)
					tx := in(b.tx.DB())
					must(t, tx.Create(&item{ID: "before"}).Error)
					isErr(t, statement, tx.Exec(statement).Error, txmq.ErrTxMisused)
					if err := b.tx.Err(); err == nil || !strings.Contains(err.Error(), kind) {
						t.Errorf("Err = %v, want %s named", err, kind)
					}
					b.refused(t, txmq.ErrTxMisused, 0)
					if b.db.Migrator().HasTable("made") || b.db.Migrator().HasColumn(&item{}, "w") {
						t.Error("the statement was run")
					}
				})
			}
			t.Run("B81 "+session+" several statements in one", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "before"}).Error)
				isErr(t, "Exec", tx.Exec("UPDATE items SET v = 1; COMMIT; UPDATE items SET v = 2").Error, txmq.ErrTxMisused)
				b.refused(t, txmq.ErrTxMisused, 0)
			})
			t.Run("B81 "+session+" as a query", func(t *testing.T) {
				b := setup(t)
				tx := in(b.tx.DB())
				must(t, tx.Create(&item{ID: "before"}).Error)
				var n int
				isErr(t, "Scan", tx.Raw("COMMIT").Scan(&n).Error, txmq.ErrTxMisused)
				if err := tx.Raw("COMMIT").Row().Scan(&n); err == nil {
					t.Error("Row = nil, want an error")
				}
				b.refused(t, txmq.ErrTxMisused, 0)
			})
		}
		t.Run("B81 a statement that was prepared outside", func(t *testing.T) {
			const made = "CREATE TABLE IF NOT EXISTS made_before (id INT)"
			b := setup(t)
			b.tx.Rollback()
			prepared := sessions["prepared"]
			must(t, prepared(b.db).Exec(made).Error)
			b = setup(t)
			tx := prepared(b.tx.DB())
			must(t, tx.Create(&item{ID: "before"}).Error)
			isErr(t, "Exec", tx.Exec(made).Error, txmq.ErrTxMisused)
			b.refused(t, txmq.ErrTxMisused, 0)
		})
		t.Run("B81 gorm's migrator", func(t *testing.T) {
			b := setup(t)
			type made struct{ ID int }
			tx := b.tx.DB()
			must(t, tx.Create(&item{ID: "before"}).Error)
			isErr(t, "AutoMigrate", tx.AutoMigrate(&made{}), txmq.ErrTxMisused)
			b.refused(t, txmq.ErrTxMisused, 0)
		})
		t.Run("a string is no statement", func(t *testing.T) {
			b := setup(t)
			must(t, b.tx.DB().Exec("INSERT INTO items VALUES ('; COMMIT; DROP TABLE items', 1)").Error)
			must(t, b.tx.DB().Create(&item{ID: "'; COMMIT; --"}).Error)
			b.committed(t, "'; COMMIT; --", "; COMMIT; DROP TABLE items")
		})
	})
}

// TestTheFunctionsOwnErrorIsItsOwn: what it returns is for the caller to judge;
// the guard has nothing to say.
func TestTheFunctionsOwnErrorIsItsOwn(t *testing.T) {
	onEach(t, nil, func(t *testing.T, setup func(*testing.T) *bundle) {
		b := setup(t)
		errOwn := errors.New("changed my mind")
		isErr(t, "AddError", b.tx.DB().AddError(errOwn), errOwn)
		must(t, b.tx.Err())
		b.tx.Rollback()
		b.nothing(t, 0)
	})
}
