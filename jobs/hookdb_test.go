package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	gomysql "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// hooks is a database/sql driver around another, which calls before, once, when
// a statement that holds text is about to go to the database; or answers it with
// fail. Once armed, commit stands in for the next COMMIT.
type hooks struct {
	driver.Connector
	text   string
	before func()
	fail   error
	once   sync.Once
	met    atomic.Int64 // statements that held text

	commit func(driver.Tx) error
	armed  atomic.Bool
}

func (h *hooks) meet(query string) error {
	if !strings.Contains(query, h.text) {
		return nil
	}
	h.met.Add(1)
	if h.before != nil {
		h.once.Do(h.before)
	}
	return h.fail
}

// Connect wraps a connection.
func (h *hooks) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &hookedConn{Conn: c, h: h}, nil
}

// hookedConn forwards by hand what embedding driver.Conn would lose.
type hookedConn struct {
	driver.Conn
	h *hooks
}

func (c *hookedConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.h.meet(q); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, q, args)
}

func (c *hookedConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, q, args)
}

func (c *hookedConn) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, q)
}

func (c *hookedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return &hookedTx{Tx: tx, h: c.h}, err
}

type hookedTx struct {
	driver.Tx
	h *hooks
}

func (t *hookedTx) Commit() error {
	if t.h.armed.CompareAndSwap(true, false) {
		return t.h.commit(t.Tx)
	}
	return t.Tx.Commit()
}

// sqliteConnector makes a connector of a driver that has none.
type sqliteConnector struct {
	d   driver.Driver
	dsn string
}

func (c sqliteConnector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.dsn) }
func (c sqliteConnector) Driver() driver.Driver                        { return c.d }

// hooked is a pool of its own on b's database, behind h.
func (b *bundle) hooked(t *testing.T, h *hooks) *gorm.DB {
	t.Helper()
	db := b.open(t)
	switch d := db.Dialector.(type) {
	case *mysql.Dialector:
		cfg, err := gomysql.ParseDSN(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		if h.Connector, err = gomysql.NewConnector(cfg); err != nil {
			t.Fatal(err)
		}
		return openDB(t, mysql.New(mysql.Config{Conn: sql.OpenDB(h)}))
	case *sqlite.Dialector:
		pool, err := db.DB()
		if err != nil {
			t.Fatal(err)
		}
		h.Connector = sqliteConnector{pool.Driver(), d.DSN}
		return openDB(t, &sqlite.Dialector{Conn: sql.OpenDB(h)})
	default:
		t.Fatalf("no hooks for %T", d)
		return nil
	}
}
