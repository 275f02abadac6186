package checker

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// cutter cuts the connection that carries the next COMMIT to a real MariaDB:
// before it, or once the server has done it.
type cutter struct {
	mu    sync.Mutex
	armed string // "", "before" or "after"
	away  bool   // then refuse connections, too
	gone  bool
}

func (c *cutter) arm(when string, away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.away, c.gone = when, away, false
}

func (c *cutter) strike() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	when := c.armed
	if when != "" {
		c.armed, c.gone = "", c.away
	}
	return when
}

func (c *cutter) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	if gone {
		return nil, io.ErrUnexpectedEOF
	}
	conn, err := testenv.Dial(ctx, addr)
	return &cutConn{Conn: conn, c: c}, err
}

type cutConn struct {
	net.Conn
	c   *cutter
	cut bool // the next answer is lost
}

func (c *cutConn) Write(p []byte) (int, error) {
	if bytes.HasSuffix(p, []byte("\x03COMMIT")) {
		switch c.c.strike() {
		case "before":
			_ = c.Close()
		case "after":
			c.cut = true
		}
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // the server answers when it has committed
	if c.cut {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func TestListenerCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	cut := new(cutter)
	connector, err := mysqldriver.NewConnector(testenv.Through(t, testenv.MySQL(t), cut.dial))
	must(t, err)
	b := &bundle{seen: new(recorder)}
	b.db, b.store = open(t, mysql.New(mysql.Config{Conn: sql.OpenDB(connector)}), nil)
	l := b.listener(t, nil)

	t.Run("B18 COMMIT happened, its answer is lost", func(t *testing.T) {
		m := stamped(t, l, "after")
		cut.arm("after", false)
		wantState(t, l.ExecuteLocalTransaction(m), commit)
		b.wantEffects(t, "after", 1)
	})
	t.Run("B18 COMMIT is lost, and a fence makes sure of it", func(t *testing.T) {
		m := stamped(t, l, "before")
		cut.arm("before", false)
		wantState(t, l.ExecuteLocalTransaction(m), rollback)
		b.wantEffects(t, "before", 0)
		e, err := b.row(t, m.GetProperty(txmq.PropertyAttempt))
		if err != nil || e.State != model.Fenced {
			t.Errorf("row = %+v, %v, want the fence", e, err)
		}
	})
	l.settleLimit = 300 * time.Millisecond // with the database away all of it is waited
	for when, want := range map[string]primitive.LocalTransactionState{"after": commit, "before": rollback} {
		t.Run("B18 database is away "+when+" COMMIT, Resolve or a check settles it", func(t *testing.T) {
			event := "away " + when
			m := stamped(t, l, event)
			cut.arm(when, true)
			wantState(t, l.ExecuteLocalTransaction(m), notKnown)
			var lost *txmq.OutcomeUnknownError
			if err := b.seen.ended(t).Err; !errors.As(err, &lost) || lost.EventID != event || lost.Topic != "paid" {
				t.Fatalf("event's error = %v, want what Resolve needs", err)
			}
			wantState(t, l.CheckLocalTransaction(asked(m, "15")), notKnown)
			cut.arm("", false)
			v, err := Resolve(t.Context(), b.store, model.Attempt{ID: lost.Attempt, Topic: lost.Topic, EventID: lost.EventID, Group: "orders"})
			if err != nil || v == txmq.Unknown {
				t.Errorf("Resolve = %v, %v, want it known", v, err)
			}
			wantState(t, l.CheckLocalTransaction(asked(m, "1")), want)
		})
	}
}
