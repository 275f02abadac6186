package consumer

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq/internal/testenv"
)

// cutter stands on the connections to MariaDB and cuts them where it is told.
type cutter struct {
	mode atomic.Int32
	cuts atomic.Int32
	then func() // after a cutCommit
}

const (
	cutNothing = iota
	cutAll
	cutCommitReply // let COMMIT pass, once, and drop its answer
	cutCommit      // drop COMMIT, once, and call then before anything is said
)

var errCut = errors.New("connection was cut by the test")

// throughCutter is an empty database whose connections go through a cutter.
func throughCutter(t *testing.T) (gorm.Dialector, *cutter) {
	t.Helper()
	c := new(cutter)
	connector, err := gomysql.NewConnector(testenv.Through(t, testenv.MySQL(t), func(ctx context.Context, addr string) (net.Conn, error) {
		if c.mode.Load() == cutAll {
			return nil, errCut
		}
		conn, err := testenv.Dial(ctx, addr)
		return &cutConn{Conn: conn, c: c}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return mysql.New(mysql.Config{Conn: sql.OpenDB(connector)}), c
}

func (c *cutter) cut(mode int32) { c.mode.Store(mode) }
func (c *cutter) hits() int      { return int(c.cuts.Load()) }

type cutConn struct {
	net.Conn
	c   *cutter
	cut atomic.Bool
}

func (n *cutConn) Write(p []byte) (int, error) {
	if n.c.mode.Load() == cutAll {
		return 0, errCut
	}
	if bytes.HasSuffix(p, []byte("\x03COMMIT")) && n.c.mode.CompareAndSwap(cutCommitReply, cutNothing) {
		n.cut.Store(true)
	}
	if bytes.HasSuffix(p, []byte("\x03COMMIT")) && n.c.mode.CompareAndSwap(cutCommit, cutNothing) {
		n.c.cuts.Add(1)
		_ = n.Close() // the server rolls back
		n.c.then()
		return len(p), nil // its answer never comes
	}
	return n.Conn.Write(p)
}

func (n *cutConn) Read(p []byte) (int, error) {
	k, err := n.Conn.Read(p) // waits for the answer, so that the commit has happened
	if n.cut.Load() {
		n.c.cuts.Add(1)
		_ = n.Close()
		return 0, errCut
	}
	if n.c.mode.Load() == cutAll {
		return 0, errCut
	}
	return k, err
}
