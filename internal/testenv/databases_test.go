package testenv_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq/internal/testenv"
)

// open opens a database that is closed when the test ends.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func query(t *testing.T, db *sql.DB, q string) string {
	t.Helper()
	var s string
	if err := db.QueryRow(q).Scan(&s); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return s
}

func TestMySQL(t *testing.T) {
	t.Run("each call has an empty database of its own", func(t *testing.T) {
		a, b := open(t, testenv.MySQL(t)), open(t, testenv.MySQL(t))
		if _, err := a.Exec("CREATE TABLE x (id INT)"); err != nil {
			t.Fatal(err)
		}
		if got := query(t, b, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); got != "0" {
			t.Errorf("the other database has %s tables, want 0", got)
		}
	})

	t.Run("the database is gone after Cleanup", func(t *testing.T) {
		var dsn string
		t.Run("inner", func(t *testing.T) { dsn = testenv.MySQL(t) })
		if dsn == "" {
			t.Skip("the inner test says why")
		}
		var refused *mysql.MySQLError
		if err := open(t, dsn).Ping(); !errors.As(err, &refused) || refused.Number != 1049 {
			t.Errorf("Ping after Cleanup = %v, want error 1049 (unknown database)", err)
		}
	})

	t.Run("params override the DSN's", func(t *testing.T) {
		dsn := testenv.MySQL(t, "loc=Asia%2FShanghai", "clientFoundRows=true", "time_zone=%27%2B08%3A00%27")
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if c.Loc.String() != "Asia/Shanghai" || !c.ClientFoundRows || !c.ParseTime {
			t.Errorf("DSN %s: loc %v, clientFoundRows %v, parseTime %v", dsn, c.Loc, c.ClientFoundRows, c.ParseTime)
		}
		if got := query(t, open(t, dsn), "SELECT @@time_zone"); got != "+08:00" {
			t.Errorf("time_zone = %s, want +08:00", got)
		}
	})

	t.Run("a bad param fails the test", func(t *testing.T) {
		testenv.MySQL(t) // skips without a server
		f := try(func(tb testing.TB) { testenv.MySQL(tb, "parseTime=perhaps") })
		if !strings.Contains(f.fatal, "parseTime=perhaps") {
			t.Errorf("fatal = %q, want the param named", f.fatal)
		}
	})

	t.Run("the user may see and kill connections", func(t *testing.T) {
		db := open(t, testenv.MySQL(t))
		victim, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer victim.Close()
		var id string
		if err := victim.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if got := query(t, db, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = "+id); got != "1" {
			t.Errorf("process list has %s rows of the other connection, want 1", got)
		}
		if _, err := db.Exec("KILL " + id); err != nil {
			t.Errorf("KILL: %v", err)
		}
	})
}

func TestMySQLUnreachable(t *testing.T) {
	t.Setenv("TXMQ_TEST_MYSQL", "u:p@tcp(127.0.0.1:1)/d")
	f := try(func(tb testing.TB) { testenv.MySQL(tb) })
	if !strings.Contains(f.fatal, "create database") {
		t.Errorf("fatal = %q, want the CREATE that failed", f.fatal)
	}
	if len(f.cleanups) != 0 {
		t.Errorf("%d cleanups of a database that was never made", len(f.cleanups))
	}
}

func TestSQLite(t *testing.T) {
	db, err := gorm.Open(sqlite.Open(testenv.SQLite(t, "_txlock=immediate")), &gorm.Config{PrepareStmt: true})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "5000"} {
		if got := query(t, raw, "PRAGMA "+pragma); got != want {
			t.Errorf("%s = %s, want %s", pragma, got, want)
		}
	}
}
