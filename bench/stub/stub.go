// Package stub is a database/sql driver that answers at once and does nothing,
// so that what is left is what the callers of database/sql cost.
package stub

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
)

// Connector makes connections whose statements each change one row. A query
// gives the row of the first Answer whose Part it has, else none.
type Connector struct{ Answers []Answer }

// Answer is one row.
type Answer struct {
	Part string
	Row  []driver.Value
}

// Connect always succeeds.
func (c *Connector) Connect(context.Context) (driver.Conn, error) { return &conn{c}, nil }

// Driver is of no use.
func (c *Connector) Driver() driver.Driver { return nil }

type conn struct{ from *Connector }

var errPrepare = errors.New("stub: nothing is prepared")

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errPrepare }

func (c *conn) PrepareContext(context.Context, string) (driver.Stmt, error) { return nil, errPrepare }
func (c *conn) Close() error                                                { return nil }
func (c *conn) Begin() (driver.Tx, error)                                   { return tx{}, nil }
func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return tx{}, nil
}
func (c *conn) Ping(context.Context) error         { return nil }
func (c *conn) ResetSession(context.Context) error { return nil }
func (c *conn) IsValid() bool                      { return true }

func (c *conn) CheckNamedValue(v *driver.NamedValue) (err error) {
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

func (c *conn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

func (c *conn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	for _, a := range c.from.Answers {
		if strings.Contains(query, a.Part) {
			return &rows{row: a.Row}, nil
		}
	}
	return &rows{over: true}, nil
}

type tx struct{}

func (tx) Commit() error   { return nil }
func (tx) Rollback() error { return nil }

type rows struct {
	row  []driver.Value
	over bool
}

func (r *rows) Columns() []string { return make([]string, len(r.row)) }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.over {
		return io.EOF
	}
	r.over = true
	copy(dest, r.row)
	return nil
}
