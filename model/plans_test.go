package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/internal/testenv"
)

// TestChangesTouchOneRecord looks at MariaDB's plan of each UPDATE of a record
// while just one is in its state, which is when an index on status looks best.
func TestChangesTouchOneRecord(t *testing.T) {
	t.Parallel()
	cfg, err := mysql.ParseDSN(testenv.MySQL(t))
	want(t, err)
	inner, err := mysql.NewConnector(cfg)
	want(t, err)
	p := &planner{Connector: inner, keys: map[string]string{}}
	db := opened(t, gormmysql.New(gormmysql.Config{Conn: sql.OpenDB(p)}), &gorm.Config{Logger: logger.Discard})
	_, err = Migrate(t.Context(), db, Config{})
	want(t, err)
	s, err := Open(t.Context(), db, Config{})
	want(t, err)

	ctx := t.Context()
	claimed := func(event string) Held {
		a := arrival(event)
		c, err := s.Claim(ctx, a, "w", minute, short)
		want(t, err)
		return Held{EventID: event, Consumer: a.Consumer, Owner: "w", Version: c.Version}
	}
	within := func(do func(*Tx) error) {
		tx, err := s.Begin(ctx)
		want(t, err)
		defer tx.Rollback()
		want(t, do(tx))
		want(t, tx.Commit(ctx))
	}
	p.clear()
	h := claimed("e1")
	heart, err := s.Heart(ctx)
	want(t, err)
	want(t, heart.Extend(ctx, h, minute))
	want(t, heart.Close())
	within(func(tx *Tx) error {
		return errors.Join(tx.Succeed(ctx, h), tx.Note(ctx, "e1", h.Consumer, errors.New("why")))
	})
	h = claimed("e2")
	want(t, s.Release(ctx, h, errors.New("why")))
	h = claimed("e2") // takes
	f := Failure{Arrival: arrival("e2"), Owner: "w", Version: h.Version, Err: errors.New("why")}
	want(t, s.Fail(ctx, f))
	within(func(tx *Tx) error { _, err := tx.Apply(ctx, arrival("e2"), short); return err })
	if len(p.keys) < 7 {
		t.Errorf("%d UPDATEs seen, there are more: %v", len(p.keys), p.keys)
	}
	for query, key := range p.keys {
		if key != "uk_event_consumer" && key != "PRIMARY" {
			t.Errorf("index %q is used by %s", key, query)
		}
	}
}

// planner asks for the plan of each UPDATE before it runs it.
type planner struct {
	driver.Connector
	mu   sync.Mutex
	keys map[string]string // by statement
}

func (p *planner) clear() { p.keys = map[string]string{} }

func (p *planner) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &plannedConn{c.(mysqlConn), p}, nil
}

// mysqlConn is what the driver's connections offer to database/sql.
type mysqlConn interface {
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

type plannedConn struct {
	mysqlConn
	p *planner
}

func (c *plannedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if i := strings.Index(query, "UPDATE t_msg_consume"); i >= 0 {
		key, err := c.key(ctx, query[i:], args)
		if err != nil {
			return nil, err
		}
		c.p.mu.Lock()
		c.p.keys[query] = key
		c.p.mu.Unlock()
	}
	return c.mysqlConn.ExecContext(ctx, query, args)
}

func (c *plannedConn) key(ctx context.Context, query string, args []driver.NamedValue) (string, error) {
	rows, err := c.QueryContext(ctx, "EXPLAIN "+query, args)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns := rows.Columns()
	values := make([]driver.Value, len(columns))
	key := ""
	for {
		if err := rows.Next(values); err != nil {
			if errors.Is(err, io.EOF) {
				return key, nil
			}
			return "", err
		}
		for i, name := range columns {
			if b, ok := values[i].([]byte); ok && name == "key" {
				key = string(b)
			}
		}
	}
}
