package model

import (
	"context"
	"database/sql"
	"testing"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/internal/testenv"
)

// readCommitted is a DSN's parameter by which sessions begin at that level.
const readCommitted = "tx_isolation=%27READ-COMMITTED%27"

// seesCommits says whether a transaction sees what another has committed since
// its first read: not at REPEATABLE READ.
func seesCommits(t *testing.T, s *Store, begin func(context.Context) (*Tx, error)) bool {
	t.Helper()
	tx, err := begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	rows := func() (n int) {
		want(t, tx.conn().QueryRowContext(t.Context(), s.q("SELECT COUNT(*) FROM {prefix}meta")).Scan(&n))
		return n
	}
	before := rows()
	want(t, s.putMetaOnce(t.Context(), "level", "x"))
	defer func() { want(t, s.db.Exec("DELETE FROM "+s.Table("meta")+" WHERE value = 'x'").Error) }()
	return rows() == before+1
}

func TestLevel(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, params ...string) *Store {
		t.Helper()
		db := opened(t, mysql.Open(testenv.MySQL(t, params...)), &gorm.Config{Logger: logger.Discard})
		if _, err := Migrate(t.Context(), db, Config{}); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), db, Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	t.Run("sessions at REPEATABLE READ are told for each transaction", func(t *testing.T) {
		s := open(t, "tx_isolation=%27REPEATABLE-READ%27")
		if !seesCommits(t, s, s.Begin) || !seesCommits(t, s, s.BeginReadCommitted) {
			t.Error("a transaction is not at READ COMMITTED")
		}
	})

	t.Run("sessions at READ COMMITTED are taken at their word, but not where it matters", func(t *testing.T) {
		s := open(t, readCommitted)
		if !seesCommits(t, s, s.Begin) || !seesCommits(t, s, s.BeginReadCommitted) {
			t.Error("a transaction is not at READ COMMITTED")
		}
		s.pool.SetMaxOpenConns(2)
		var all []*sql.Conn
		for range 2 {
			c, err := s.pool.Conn(t.Context())
			want(t, err)
			_, err = c.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
			want(t, err)
			all = append(all, c)
		}
		for _, c := range all {
			want(t, c.Close())
		}
		if seesCommits(t, s, s.Begin) {
			t.Error("Begin says the level, which costs a round trip")
		}
		if !seesCommits(t, s, s.BeginReadCommitted) {
			t.Error("BeginReadCommitted has the session's level")
		}
	})
}
