package producer

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"net"
	"sync"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq/internal/testenv"
)

// cutter stands in the connections to a real MariaDB, and cuts the one that
// carries the next COMMIT: before it, or after the server has done it. Or it
// has the server report deadlocks.
type cutter struct {
	mu    sync.Mutex
	armed string // "", "before" or "after"
	sees  func() // is called once COMMIT is on its way
	locks int    // so many inserts into the log meet a deadlock
	away  bool   // refuse new connections once it has cut
	gone  bool
	cuts  int
}

// throughCutter is a database whose connections go through a cutter.
func throughCutter(t *testing.T) (gorm.Dialector, *cutter) {
	t.Helper()
	c := new(cutter)
	connector, err := mysqldriver.NewConnector(testenv.Through(t, testenv.MySQL(t), func(ctx context.Context, addr string) (net.Conn, error) {
		if c.refuses() {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: io.ErrUnexpectedEOF}
		}
		conn, err := testenv.Dial(ctx, addr)
		return &cutConn{Conn: conn, c: c}, err
	}))
	must(t, err)
	return mysql.New(mysql.Config{Conn: sql.OpenDB(connector)}), c
}

func (c *cutter) arm(when string, away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.away, c.gone = when, away, false
}

// heal lets connections in again.
func (c *cutter) heal() { c.arm("", false) }

func (c *cutter) refuses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// strike says whether to cut this COMMIT, and when.
func (c *cutter) strike() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	when := c.armed
	if when != "" {
		c.armed, c.gone, c.cuts = "", c.away, c.cuts+1
	}
	return when
}

// deadlock says whether this insert is to meet one.
func (c *cutter) deadlock() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locks--
	return c.locks >= 0
}

type cutConn struct {
	net.Conn
	c    *cutter
	cut  bool   // the next answer is lost
	says []byte // instead of the next answer
}

// deadlockAnswer is error 1213 as the server sends it.
var deadlockAnswer = append([]byte{17, 0, 0, 1, 0xff, 0xbd, 0x04}, "#40001deadlock"...)

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.HasSuffix(b, []byte("\x03COMMIT")) {
		switch c.c.strike() {
		case "before":
			_ = c.Conn.Close()
		case "after":
			c.cut = true
		}
		if c.c.sees != nil {
			defer c.c.sees()
		}
	}
	if bytes.Contains(b, []byte("INSERT INTO t_tx_log")) && c.c.deadlock() {
		c.says = deadlockAnswer
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // the server answers when it has committed
	if c.cut {
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	if c.says != nil {
		n, c.says = copy(b, c.says), nil
	}
	return n, err
}
