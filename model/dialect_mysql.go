package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/database"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

//go:embed migrations/mysql/*.sql
var mysqlMigrations embed.FS

// Numbers of errors that decide something here.
const (
	erDupEntry      = 1062
	erNoSuchTable   = 1146
	erLockWait      = 1205 // MariaDB gives it for NOWAIT as well
	erLockTableFull = 1206
	erDeadlock      = 1213
	erCheckRead     = 1020 // MariaDB: the row has changed since the snapshot
	erShutdown      = 1053
	erNotThere      = 1305 // savepoint, function or procedure
	erInterrupted   = 1317
	erXARollback    = 1402
	erXALockWait    = 1613
	erXADeadlock    = 1614
	erKilled        = 1927 // MariaDB: connection was killed
	erTimeoutMaria  = 1969
	erTimeoutMySQL  = 3024
	erNowaitMySQL   = 3572
)

func mysqlDialect() dialect {
	sub, err := fs.Sub(mysqlMigrations, "migrations/mysql")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return dialect{
		name: "mysql", goose: database.DialectMySQL, migrations: sub,
		now:         "UTC_TIMESTAMP(3)",
		nowPlus:     "(UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)",
		random:      "UUID()",
		between:     func(from, to string) string { return "TIMESTAMPDIFF(MICROSECOND, " + from + ", " + to + ")" },
		lockNowait:  "FOR UPDATE NOWAIT",
		isolation:   sql.LevelReadCommitted,
		savepoints:  true,
		backslash:   true,
		insert:      mysqlInsert,
		deadlock:    func(err error) bool { return mysqlNumber(err, erDeadlock, erCheckRead) },
		lockWait:    func(err error) bool { return mysqlNumber(err, erLockWait, erNowaitMySQL) },
		missing:     func(err error) bool { return mysqlNumber(err, erNoSuchTable) },
		breaks:      mysqlBreaks,
		tableExists: "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
		adopts:      true,
		probe:       mysqlProbe,
		address:     mysqlAddress,
		migrateLock: mysqlMigrateLock,
	}
}

func mysqlNumber(err error, numbers ...uint16) bool {
	if err == nil {
		return false // errors.As would cost an allocation
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}

// mysqlInsert relies on the error, which tells the truth whatever the DSN's
// clientFoundRows and the server are; affected rows of ON DUPLICATE KEY don't.
func mysqlInsert(ctx context.Context, c conn, query string, args []any) (bool, error) {
	_, err := c.ExecContext(ctx, query, args...)
	if mysqlNumber(err, erDupEntry) {
		return false, nil
	}
	return err == nil, err
}

// mysqlBreaks: a lock wait undoes one statement only, but then half the work
// could be committed, so it counts as broken.
func mysqlBreaks(err error) bool {
	if lost(err) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
		return true
	}
	if mysqlNumber(err, erNotThere) {
		return strings.Contains(err.Error(), "SAVEPOINT") // and no function or procedure: the function's mistake
	}
	return mysqlNumber(err, erLockWait, erLockTableFull, erDeadlock, erCheckRead, erShutdown,
		erInterrupted, erXARollback, erXALockWait, erXADeadlock, erKilled, erTimeoutMaria, erTimeoutMySQL)
}

// mysqlProbe checks the version and the DSN, and chooses how to bound a lock
// wait: MariaDB has SET STATEMENT; MySQL can't set innodb_lock_wait_timeout by a
// hint, so there it is set around the statement.
func mysqlProbe(ctx context.Context, c conn, d *dialect) error {
	var version string
	var parsed any
	var wait int
	err := c.QueryRowContext(ctx, "SELECT VERSION(), UTC_TIMESTAMP(), @@SESSION.innodb_lock_wait_timeout").
		Scan(&version, &parsed, &wait)
	if err != nil {
		return err
	}
	if _, ok := parsed.(time.Time); !ok {
		return &txmq.SchemaError{
			Problem: "the DSN lacks parseTime=true",
			Hint:    "add parseTime=true to it, else every time is read as bytes",
		}
	}
	if err := mysqlVersion(version); err != nil {
		return err
	}
	isolation := "@@SESSION.transaction_isolation"
	d.waiting = waitBySession(wait)
	if strings.Contains(version, "MariaDB") {
		isolation, d.waiting = "@@SESSION.tx_isolation", waitBySetStatement
	}
	return mysqlSession(ctx, c, isolation, d)
}

// mysqlAddress knows the dialector of gorm's own driver.
func mysqlAddress(db *gorm.DB) string {
	d, ok := db.Dialector.(*gormmysql.Dialector)
	if !ok || d.DSNConfig == nil {
		return ""
	}
	return d.DSNConfig.Addr
}

// mysqlSession refuses what would make a statement's outcome a lie: without
// autocommit a statement that stands alone commits nothing, and with dirty reads
// a SUCCESS may be seen that is rolled back later.
func mysqlSession(ctx context.Context, c conn, isolation string, d *dialect) error {
	var autocommit bool
	var level string
	if err := c.QueryRowContext(ctx, "SELECT @@SESSION.autocommit, "+isolation).Scan(&autocommit, &level); err != nil {
		return err
	}
	d.committed = strings.EqualFold(level, "READ-COMMITTED")
	switch {
	case !autocommit:
		return &txmq.SchemaError{Problem: "the connections have autocommit off", Hint: "take autocommit=0 out of the DSN or the server's init_connect"}
	case strings.EqualFold(level, "READ-UNCOMMITTED"):
		return &txmq.SchemaError{Problem: "the connections read uncommitted rows", Hint: "use READ COMMITTED or REPEATABLE READ"}
	}
	return nil
}

func mysqlVersion(version string) error {
	product, least := "MySQL", [2]int{8, 0}
	if strings.Contains(version, "MariaDB") {
		product, least = "MariaDB", [2]int{10, 6}
		version = strings.TrimPrefix(version, "5.5.5-") // what old replication protocols put in front
	}
	parts := strings.SplitN(version, ".", 3)
	var major, minor int
	if len(parts) >= 2 {
		major, _ = strconv.Atoi(parts[0])
		minor, _ = strconv.Atoi(parts[1])
	}
	if major > least[0] || major == least[0] && minor >= least[1] {
		return nil
	}
	return &txmq.SchemaError{
		Problem: fmt.Sprintf("%s %q is not supported", product, version),
		Hint:    "use MySQL 8.0, MariaDB 10.6 or newer",
	}
}

func waitBySetStatement(_ context.Context, _ conn, wait time.Duration, do func(string) error) error {
	if wait == time.Second {
		return do("SET STATEMENT innodb_lock_wait_timeout=1 FOR ") // the usual one, which need not be made anew
	}
	return do("SET STATEMENT innodb_lock_wait_timeout=" + strconv.Itoa(wholeSeconds(wait)) + " FOR ")
}

func waitBySession(restore int) func(context.Context, conn, time.Duration, func(string) error) error {
	return func(ctx context.Context, c conn, wait time.Duration, do func(string) error) error {
		set := func(ctx context.Context, seconds int) error {
			_, err := c.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout="+strconv.Itoa(seconds))
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// Not ctx: ended between two of the three, it would leave the setting on
		// a connection that goes back to the service's pool.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionLimit)
		defer cancel()
		if err := set(bounded, wholeSeconds(wait)); err != nil {
			return err
		}
		err := do("")
		if restored := set(bounded, restore); err == nil {
			err = restored
		}
		return err
	}
}

// sessionLimit bounds setting and restoring a session's lock wait.
const sessionLimit = 5 * time.Second

// wholeSeconds rounds up: the server counts in seconds, and 0 would not wait.
func wholeSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}

// mysqlMigrateLock hashes, since the server's locks know no databases and their
// names have at most 64 characters.
func mysqlMigrateLock(ctx context.Context, c *sql.Conn, name string) (func(), error) {
	const lock = "SHA1(CONCAT(DATABASE(), '.', ?))"
	var got sql.NullInt64
	if err := c.QueryRowContext(ctx, "SELECT GET_LOCK("+lock+", 60)", name).Scan(&got); err != nil {
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, &txmq.SchemaError{Problem: "another migration holds the lock " + name, Hint: "wait for it and try again"}
	}
	return func() { _, _ = c.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK("+lock+")", name) }, nil
}
