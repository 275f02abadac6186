// Package dbcount wraps a MySQL driver so that it counts what it sends. Every
// side of a comparison runs on it, so what it costs, all pay.
package dbcount

import (
	"context"
	"database/sql/driver"
	"net"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// Counts of one side's database traffic.
type Counts struct {
	Statements int64 // Exec and Query, without what begins and ends transactions
	Commits    int64 // COMMIT
	Trips      int64 // a request and its answer on the socket
}

// Add is c with o added.
func (c Counts) Add(o Counts) Counts {
	return Counts{c.Statements + o.Statements, c.Commits + o.Commits, c.Trips + o.Trips}
}

// Sub is what came since o.
func (c Counts) Sub(o Counts) Counts {
	return Counts{c.Statements - o.Statements, c.Commits - o.Commits, c.Trips - o.Trips}
}

// Counter counts for all connections of one connector. Safe for concurrent use.
type Counter struct{ statements, commits, trips atomic.Int64 }

// Counts so far.
func (c *Counter) Counts() Counts {
	return Counts{c.statements.Load(), c.commits.Load(), c.trips.Load()}
}

// MySQL is a connector for cfg, which it takes over.
func (c *Counter) MySQL(cfg *mysql.Config) (driver.Connector, error) {
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &socket{TCPConn: tcp, counter: c}, nil
		}
		return conn, nil // a Unix socket: its trips are not counted
	}
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return c.Wrap(inner), nil
}

// Wrap counts statements and commits of a connector's connections, which have
// to offer what database/sql knows of.
func (c *Counter) Wrap(inner driver.Connector) driver.Connector { return &connector{inner, c} }

// socket counts a trip where it is written to after it was read from. It stays
// a TCPConn, so that the driver looks at its liveness as always.
type socket struct {
	*net.TCPConn
	counter *Counter
	asked   bool // by its connection's one user
}

func (s *socket) Write(b []byte) (int, error) {
	if !s.asked {
		s.asked = true
		s.counter.trips.Add(1)
	}
	return s.TCPConn.Write(b)
}

func (s *socket) Read(b []byte) (int, error) {
	s.asked = false
	return s.TCPConn.Read(b)
}

type connector struct {
	driver.Connector
	counter *Counter
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := inner.(fullConn)
	if !ok {
		return nil, driver.ErrSkip
	}
	return &conn{full, c.counter}, nil
}

// fullConn is all that database/sql asks a connection for; what is left out by
// embedding driver.Conn alone would change how a driver is used.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type conn struct {
	fullConn
	counter *Counter
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.fullConn.ExecContext(ctx, query, args)
	c.counted(err)
	return res, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fullConn.QueryContext(ctx, query, args)
	c.counted(err)
	return rows, err
}

// PrepareContext counts as the statement: what is prepared here is run once,
// since the driver could not write its arguments into it.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.counter.statements.Add(1)
	return c.fullConn.PrepareContext(ctx, query)
}

func (c *conn) counted(err error) {
	if err != driver.ErrSkip { //nolint:errorlint // database/sql compares so, and prepares then
		c.counter.statements.Add(1)
	}
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return countedTx{tx, c.counter}, nil
}

type countedTx struct {
	driver.Tx
	counter *Counter
}

func (t countedTx) Commit() error {
	t.counter.commits.Add(1)
	return t.Tx.Commit()
}
