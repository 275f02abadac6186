package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// adminTimeout bounds CREATE and DROP DATABASE, which wait for other sessions'
// locks and, right after a restart, for the server.
const adminTimeout = 30 * time.Second

// MySQL creates an empty database for this test on MySQL or MariaDB, drops it
// in Cleanup, and returns its DSN for go-sql-driver/mysql. Each param overrides
// one of the DSN's, written as there: "clientFoundRows=true",
// "loc=Asia%2FShanghai", "time_zone=%27%2B08%3A00%27".
//
// A test that leaves a transaction open fails in Cleanup, since the database
// cannot be dropped.
func MySQL(tb testing.TB, params ...string) string {
	tb.Helper()
	admin := need(tb, "TXMQ_TEST_MYSQL", "mariadb")
	own, err := override(admin, params)
	if err != nil {
		tb.Fatalf("TXMQ_TEST_MYSQL with %q: %v", params, err)
	}
	own.DBName = "txmq_" + strings.ToLower(rand.Text()[:16])

	if err := exec(admin, "CREATE DATABASE "+own.DBName); err != nil {
		tb.Fatalf("create database %s: %v", own.DBName, err)
	}
	tb.Cleanup(func() {
		if err := exec(admin, "DROP DATABASE "+own.DBName); err != nil {
			tb.Errorf("drop database %s (has the test left a transaction open?): %v", own.DBName, err)
		}
	})
	return own.FormatDSN()
}

// override parses a DSN with params added; of two equal ones the later counts.
func override(dsn string, params []string) (*mysql.Config, error) {
	mark := "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	if len(params) > 0 {
		dsn += mark + strings.Join(params, "&")
	}
	return mysql.ParseDSN(dsn)
}

// exec runs one statement on a connection of its own.
func exec(dsn, statement string) error {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	config.Params = maps.Clone(config.Params)
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	config.Params["lock_wait_timeout"] = "10" // the default is a day
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()

	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// SQLite returns the DSN, for glebarez/sqlite, of a database file of this test's
// own: write-ahead log, and writers that wait 5 s for each other. Each param is
// added to it as written: "_txlock=immediate".
func SQLite(tb testing.TB, params ...string) string {
	tb.Helper()
	all := append([]string{"_pragma=journal_mode(WAL)", "_pragma=busy_timeout(5000)"}, params...)
	return "file:" + filepath.Join(tb.TempDir(), "txmq.db") + "?" + strings.Join(all, "&")
}
