package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
)

// troubleChecks: what one connection, row or text must not do to the others.
var troubleChecks = []check{
	{name: "a row that is held does not stop the sweep of the others", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		var held Held
		for i := range 4 {
			_, h := b.claim(t, fmt.Sprint("stuck-", i), "w1")
			if i == 0 {
				held = h
			}
		}
		zombie := b.begin(t) // it wakes, and stops again between Succeed and COMMIT
		want(t, zombie.Succeed(t.Context(), held))
		b.clock.Add(2 * minute)
		swept, err := b.s.Sweep(t.Context(), 10)
		if err != nil || len(swept) != 3 {
			t.Errorf("Sweep = %d rows, %v, want the other 3", len(swept), err)
		}
		want(t, zombie.Commit(t.Context()))
		if r := b.find(t, held.EventID); r.Status != Success {
			t.Errorf("record = %+v, want SUCCESS", r)
		}
	}},
	{name: "a heart that found no connection reserves one at the next call", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		_, h := b.claim(t, "e", "w1")
		heart := b.heart(t)
		pool, err := b.db.DB()
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		want(t, heart.conn().QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		exec(t, b.db, "KILL ?", id)
		pool.SetMaxOpenConns(2)
		defer pool.SetMaxOpenConns(0)
		one, two := b.begin(t), (*Tx)(nil)
		busy, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		two, _ = b.s.Begin(busy) // takes the dead one's place, if it may
		err = heart.Extend(busy, h, minute)
		if two != nil {
			if err == nil {
				t.Error("Extend with all connections taken = nil")
			}
			two.Rollback()
		}
		want(t, heart.Extend(t.Context(), h, minute))
		if heart.c == nil {
			t.Error("the heart shares the handlers' connections from now on")
		}
		one.Rollback()
	}},
	{name: "two checkers of one committed attempt do not shut each other out", needs: two, run: func(t *testing.T, b *bundle) {
		a := Attempt{ID: "a1", Topic: "order-paid", EventID: "e", Group: "g"}
		tx := b.begin(t)
		want(t, tx.Log(t.Context(), a, RouteHalf))
		want(t, tx.Commit(t.Context()))
		one, two := b.begin(t), b.begin(t)
		for _, tx := range []*Tx{one, two} {
			if e, err := tx.Look(t.Context(), a.ID); err != nil || e.State != Committed {
				t.Errorf("Look = %+v, %v, want COMMITTED", e, err)
			}
		}
		one.Rollback()
		two.Rollback()
	}},
	{name: "an error's text that the connection can't send is still recorded", needs: server, run: func(t *testing.T, b *bundle) {
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("emoji"), Err: errors.New("no 🍕 left")}))
		if r := b.find(t, "emoji"); !strings.Contains(r.LastError, "no ") {
			t.Errorf("last_error = %q", r.LastError)
		}
	}},
}

// TestRefusedCommit: SQLite refuses COMMIT over a deferred foreign key, and
// leaves the transaction open on a connection that would go back to the pool.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		db := opened(t, sqlite.Open(testenv.SQLite(t, "_pragma=foreign_keys(1)")), &gorm.Config{Logger: logger.Discard, PrepareStmt: prepare})
		b := &bundle{harness: harness{name: "sqlite"}, db: db}
		if _, err := Migrate(t.Context(), db, Config{}); err != nil {
			t.Fatal(err)
		}
		b.s = b.store(t, Config{})
		exec(t, db, "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
		exec(t, db, "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED)")
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("e"), short); err != nil {
			t.Fatal(err)
		}
		want(t, tx.DB().Exec("INSERT INTO child VALUES (1, 7)").Error)
		if err := tx.Commit(t.Context()); !errors.Is(err, txmq.ErrOutcomeUnknown) {
			t.Errorf("Commit = %v, want ErrOutcomeUnknown", err)
		}
		if _, err := b.s.Find(t.Context(), "e", handler); !errors.Is(err, txmq.ErrNotFound) {
			t.Errorf("Find = %v, want ErrNotFound: nothing was committed", err)
		}
		if c := b.apply(t, "next"); c.Decision != Run {
			t.Errorf("the next event = %+v, want it to run: no lock is left", c)
		}
	}
}

func TestSessionsThatLieAreRefused(t *testing.T) {
	t.Parallel()
	for param, name := range map[string]string{
		"autocommit=0":                                 "autocommit",
		"tx_isolation=%27READ-UNCOMMITTED%27":          "uncommitted",
		"tx_isolation=%27READ-COMMITTED%27":            "",
		"charset=utf8&tx_isolation=%27SERIALIZABLE%27": "",
	} {
		db := opened(t, mysql.Open(testenv.MySQL(t, param)), &gorm.Config{Logger: logger.Discard})
		_, err := Migrate(t.Context(), db, Config{})
		var schema *txmq.SchemaError
		if (name != "") != errors.As(err, &schema) || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want a SchemaError about %q", param, err, name)
		}
	}
}
