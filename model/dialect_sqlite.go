package model

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/sqlite/*.sql
var sqliteMigrations embed.FS

// Primary result codes, the lowest byte of what the engine returns.
const (
	sqliteError      = 1
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteConstraint = 19
	sqliteMismatch   = 20
)

// sqliteDialect never imports the driver: model links no SQLite that the user
// did not choose. Its errors are told by their Code method.
func sqliteDialect() dialect {
	sub, err := fs.Sub(sqliteMigrations, "migrations/sqlite")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return dialect{
		name: "sqlite", goose: database.DialectSQLite3, migrations: sub,
		now:     "strftime('%Y-%m-%d %H:%M:%f', 'now')",
		nowPlus: "strftime('%Y-%m-%d %H:%M:%f', 'now', printf('%+.3f seconds', ? / 1000000.0))",
		random:  "lower(hex(randomblob(16)))",
		// In whole milliseconds, as the columns: a julianday is good to about 50 µs.
		between: func(from, to string) string {
			return "1000 * CAST(ROUND((julianday(" + to + ") - julianday(" + from + ")) * 86400000.0) AS INTEGER)"
		},
		// One writer at a time: a write transaction is the lock.
		isolation: sql.LevelDefault,
		insert:    sqliteInsert,
		waiting: func(_ context.Context, _ conn, _ time.Duration, do func(string) error) error {
			return do("") // the DSN's busy_timeout is the limit
		},
		deadlock:    func(error) bool { return false },
		lockWait:    func(err error) bool { c := sqliteCode(err); return c == sqliteBusy || c == sqliteLocked },
		missing:     func(err error) bool { return err != nil && strings.Contains(err.Error(), "no such table") },
		breaks:      sqliteBreaks,
		tableExists: "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		probe: func(ctx context.Context, c conn, _ *dialect) error {
			var version string
			return c.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
		},
	}
}

func sqliteCode(err error) int {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

func sqliteInsert(ctx context.Context, c conn, query string, args []any) (bool, error) {
	res, err := c.ExecContext(ctx, query+" ON CONFLICT DO NOTHING", args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// sqliteBreaks: constraint violations and errors in the text undo one statement
// and are the function's to judge; a disk error, an interrupt or a lock is not.
func sqliteBreaks(err error) bool {
	if lost(err) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
		return true
	}
	switch sqliteCode(err) {
	case 0, sqliteError, sqliteConstraint, sqliteMismatch:
		return false
	default:
		return true
	}
}
