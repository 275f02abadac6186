package e2e

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/txmq/txmq/model"
)

// tally is what SQL says of a world.
type tally struct {
	committed, effects                 int
	lost, double, phantom              int
	doubleOrders, strayLog, missingLog int
	balance                            int
	open                               int // PROCESSING or FAIL
	dead                               int
	events                             []string // committed
}

func (c tally) String() string {
	return fmt.Sprintf("committed=%d effects=%d lost=%d double=%d phantom=%d open=%d dead=%d",
		c.committed, c.effects, c.lost, c.double, c.phantom, c.open, c.dead)
}

// bad lists the promises that are broken, now that nothing is under way.
func (c tally) bad() error {
	var broken []string
	want := func(what string, got, want int) {
		if got != want {
			broken = append(broken, fmt.Sprintf("%s = %d, want %d", what, got, want))
		}
	}
	want("committed without effect", c.lost, 0)
	want("events with more than one effect", c.double, 0)
	want("effects without commit", c.phantom, 0)
	want("events committed twice", c.doubleOrders, 0)
	want("commits without log row", c.missingLog, 0)
	want("log rows without commit", c.strayLog, 0)
	want("balance", c.balance, 10*c.effects)
	want("records PROCESSING or FAIL", c.open, 0)
	want("records DEAD", c.dead, 0)
	if broken == nil {
		return nil
	}
	return fmt.Errorf("%s (%v)", strings.Join(broken, "; "), c)
}

// tally counts in one snapshot: what commits meanwhile is in all numbers or in
// none.
func (w *world) tally(t *testing.T) (c tally) {
	t.Helper()
	tx, err := w.sql.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	var events sql.NullString
	for _, q := range []struct {
		into  any
		query string
	}{
		{&events, "SELECT GROUP_CONCAT(DISTINCT event ORDER BY event) FROM e2e_order"},
		{&c.committed, "SELECT COUNT(DISTINCT event) FROM e2e_order"},
		{&c.effects, "SELECT COUNT(*) FROM e2e_share"},
		{&c.lost, "SELECT COUNT(DISTINCT event) FROM e2e_order WHERE event NOT IN (SELECT event FROM e2e_share)"},
		{&c.double, "SELECT COUNT(*) FROM (SELECT event FROM e2e_share GROUP BY event, handler HAVING COUNT(*) > 1) d"},
		{&c.phantom, "SELECT COUNT(*) FROM e2e_share WHERE event NOT IN (SELECT event FROM e2e_order)"},
		{&c.doubleOrders, "SELECT COUNT(*) FROM (SELECT event FROM e2e_order GROUP BY event HAVING COUNT(*) > 1) d"},
		{&c.missingLog, "SELECT COUNT(*) FROM e2e_order WHERE event NOT IN (SELECT event_id FROM t_tx_log WHERE state = 'COMMITTED')"},
		{&c.strayLog, "SELECT COUNT(*) FROM t_tx_log WHERE state = 'COMMITTED' AND event_id NOT IN (SELECT event FROM e2e_order)"},
		{&c.balance, "SELECT amount FROM e2e_balance"},
		{&c.open, "SELECT COUNT(*) FROM t_msg_consume WHERE status IN ('PROCESSING', 'FAIL')"},
		{&c.dead, "SELECT COUNT(*) FROM t_msg_consume WHERE status = 'DEAD'"},
	} {
		if err := tx.QueryRowContext(t.Context(), q.query).Scan(q.into); err != nil {
			t.Fatalf("%s: %v", q.query, err)
		}
	}
	if events.Valid {
		c.events = strings.Split(events.String, ",")
	}
	return c
}

// settled waits until exactly these events are committed and consumed, and
// nothing is under way; then it checks every promise.
func (w *world) settled(t *testing.T, events ...string) {
	t.Helper()
	want := slices.Sorted(slices.Values(events))
	var c tally
	w.until(t, fmt.Sprintf("%v committed and consumed", want), func() (bool, string) {
		c = w.tally(t)
		return c.lost == 0 && c.open == 0 && slices.Equal(c.events, want), fmt.Sprintf("%v %v", c, c.events)
	})
	if err := c.bad(); err != nil {
		t.Error(err)
	}
}

// check counts what must be 0.
func (w *world) check(t *testing.T) {
	t.Helper()
	if err := w.tally(t).bad(); err != nil {
		t.Error(err)
	}
}

func (w *world) number(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := w.sql.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (w *world) strings(t *testing.T, query string, args ...any) (list []string) {
	t.Helper()
	rows, err := w.sql.QueryContext(t.Context(), query, args...)
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	for rows.Next() {
		var s string
		must(t, rows.Scan(&s))
		list = append(list, s)
	}
	must(t, rows.Err())
	return list
}

// attempt waits until the log says what became of it, and returns that.
func (w *world) attempt(t *testing.T, id string) (state string) {
	t.Helper()
	w.until(t, "a log row of attempt "+id, func() (bool, string) {
		states := w.strings(t, "SELECT state FROM t_tx_log WHERE attempt = ?", id)
		if len(states) == 1 {
			state = states[0]
		}
		return len(states) == 1, fmt.Sprint(states)
	})
	return state
}

func (w *world) record(t *testing.T, event string) model.ConsumeRecord {
	t.Helper()
	r, err := w.store.Find(w.ctx, event, w.handler)
	must(t, err)
	return r
}
