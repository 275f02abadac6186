package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/pressly/goose/v3/database"
	"gorm.io/gorm"
)

// conn is what a statement runs on: a *sql.DB, a *sql.Conn or a *sql.Tx.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// dialect is all that differs between databases. The statements themselves are
// shared; these fields fill their {words}.
type dialect struct {
	name       string // as in migrations/<name>
	goose      database.Dialect
	migrations fs.FS

	now        string // the database's clock, UTC
	nowPlus    string // the same plus ? microseconds
	random     string // a new random name
	lockNowait string // ends a locking read that doesn't
	isolation  sql.IsolationLevel
	committed  bool // sessions have that level from the start
	savepoints bool // see txguard.Rules
	backslash  bool // see txguard.Rules

	// between gives the microseconds from one time to another, NULL where one is.
	between func(from, to string) string
	// insert runs an INSERT and says whether it inserted; a duplicate key is no
	// error, and leaves the transaction usable.
	insert func(ctx context.Context, c conn, query string, args []any) (bool, error)
	// waiting runs do so that its statements wait for row locks at most about
	// wait, as far as the database has such a limit. do gets the prefix that
	// its statement has to start with.
	waiting func(ctx context.Context, c conn, wait time.Duration, do func(prefix string) error) error

	deadlock    func(error) bool // the server rolled the transaction back to end a deadlock
	lockWait    func(error) bool // a lock was not to be had in time, or at once
	missing     func(error) bool // no such table
	breaks      func(error) bool // see txguard.Rules
	tableExists string           // a query with the table's name as argument
	adopts      bool             // has what adopt_*.go asks for: information_schema, RENAME TABLE, CONVERT

	// probe refuses a server that is not supported, and reads what the dialect
	// has to know of it.
	probe func(ctx context.Context, c conn, d *dialect) error
	// address is where the server is, without user and password, for errors;
	// "" where that can't be told. nil: there is no server.
	address func(*gorm.DB) string
	// migrateLock keeps two migrations apart, on a connection of its own. nil:
	// there is no such lock, but each step is a transaction.
	migrateLock func(ctx context.Context, c *sql.Conn, name string) (unlock func(), err error)
}

// lost tells an error of the connection or of a context from an answer of the
// server: whether the statement happened is not known.
func lost(err error) bool {
	var op net.Error
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op)
}

// openTimeout is how long a database may take to say who it is. A driver waits
// for a server that accepts a connection and says nothing until it is told not
// to.
const openTimeout = 5 * time.Second

// greet is probe in time, and tells where it was that nobody answered.
func (d dialect) greet(ctx context.Context, db *gorm.DB, c conn, to *dialect) error {
	inTime, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err := d.probe(inTime, c, to)
	if !lost(err) || d.address == nil {
		return err
	}
	if inTime.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %w", openTimeout, err)
	}
	if at := d.address(db); at != "" {
		return fmt.Errorf("database at %s: %w", at, err)
	}
	return err
}

func dialectOf(db *gorm.DB) (dialect, bool) {
	switch db.Name() {
	case "mysql":
		return mysqlDialect(), true
	case "sqlite":
		return sqliteDialect(), true
	default:
		return dialect{}, false
	}
}
