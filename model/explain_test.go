package model

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// TestStatementsUseTheirIndexes looks at MariaDB's plans with some thousand
// rows, nine in ten of them finished.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	h := harnesses()[3]
	db := h.open(t)
	if _, err := Migrate(t.Context(), db, Config{}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, `INSERT INTO t_msg_consume (event_id, consumer, status, retry_cnt, version, lease_until, payload_hash, topic,
		broker_name, queue_id, queue_offset, msg_id, offset_msg_id, created_at, updated_at)
		SELECT CONCAT('e', seq), 'c', ELT(1 + (seq % 20 = 0) + (seq % 40 = 0), 'SUCCESS', 'PROCESSING', 'FAIL'), 0, 1,
		IF(seq % 20 = 0, UTC_TIMESTAMP(3) + INTERVAL (CAST(seq % 7 AS SIGNED) - 3) MINUTE, NULL), REPEAT('h', 32), 't', 'b', 0, seq, 'm', 'o',
		UTC_TIMESTAMP(3) - INTERVAL seq SECOND, UTC_TIMESTAMP(3) - INTERVAL seq SECOND FROM seq_1_to_5000`)
	exec(t, db, `INSERT INTO t_tx_log (attempt, topic, event_id, state, route, producer_group, created_at)
		SELECT CONCAT('a', seq), 't', CONCAT('e', seq), 'COMMITTED', 'HALF', 'g', UTC_TIMESTAMP(3) FROM seq_1_to_5000`)
	exec(t, db, "ANALYZE TABLE t_msg_consume, t_tx_log")

	explained := &explainer{t: t, s: s}
	_, err = s.find(t.Context(), explained, "e77", "c")
	explained.uses(err, "uk_event_consumer", 1)
	_, err = s.look(t.Context(), explained, "a77", "{lock nowait}")
	explained.uses(err, "uk_attempt", 1)
	_, err = s.stuck(t.Context(), explained, 100)
	explained.uses(err, "idx_sweep", 250)
	exec(t, db, "UPDATE t_msg_consume SET next_retry_at = UTC_TIMESTAMP(3) + INTERVAL (CAST(id % 7 AS SIGNED) - 3) MINUTE WHERE status = 'FAIL'")
	_, err = s.due(t.Context(), explained, minute, 100)
	explained.uses(err, "idx_compensate", 250)
	_, err = s.records(t.Context(), explained, Filter{Limit: 10})
	explained.uses(err, "PRIMARY", 5000)
	_, err = s.records(t.Context(), explained, Filter{Status: Fail, Limit: 10})
	explained.uses(err, "idx_purge|idx_sweep|idx_compensate|PRIMARY", 5000)
}

// explainer is a conn that asks for the plan of each query before it runs it.
type explainer struct {
	t    *testing.T
	s    *Store
	plan string
	rows int64
	key  string
	typ  string
}

func (e *explainer) ask(ctx context.Context, query string, args []any) {
	e.t.Helper()
	rows, err := e.s.pool.QueryContext(ctx, "EXPLAIN "+query, args...)
	if err != nil {
		e.t.Fatalf("EXPLAIN %s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		e.t.Fatal(columns, err)
	}
	values := make([]sql.NullString, len(columns))
	targets := make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	if err := rows.Scan(targets...); err != nil {
		e.t.Fatal(err)
	}
	e.plan = query
	for i, c := range columns {
		switch c {
		case "type":
			e.typ = values[i].String
		case "key":
			e.key = values[i].String
		case "rows":
			_, _ = fmt.Sscan(values[i].String, &e.rows)
		}
		e.plan += fmt.Sprintf(" %s=%s", c, values[i].String)
	}
}

// uses checks the plan that was asked for last.
func (e *explainer) uses(err error, keys string, most int64) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	if e.typ == "ALL" || e.key == "" || !strings.Contains("|"+keys+"|", "|"+e.key+"|") || e.rows > most {
		e.t.Errorf("want key %s and at most %d rows; plan: %s", keys, most, e.plan)
	}
}

func (e *explainer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e.s.pool.ExecContext(ctx, query, args...)
}

func (e *explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	e.ask(ctx, query, args)
	return e.s.pool.QueryContext(ctx, query, args...)
}

func (e *explainer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	e.ask(ctx, query, args)
	return e.s.pool.QueryRowContext(ctx, query, args...)
}
