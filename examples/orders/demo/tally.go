package demo

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// Tally is what came of the orders, all of it counted in the services' tables.
type Tally struct {
	Committed  int // orders paid
	RolledBack int // orders refused by the business rule
	Delivered  int // distinct events delivered
	Effects    int // shares written
	Lost       int // orders paid without a share
	Double     int // orders with more than one share
	Phantom    int // shares of orders that are not paid
}

// String is the last line of the demo.
func (t Tally) String() string {
	return fmt.Sprintf("committed=%d rolled_back=%d delivered=%d effects=%d lost=%d double=%d phantom=%d",
		t.Committed, t.RolledBack, t.Delivered, t.Effects, t.Lost, t.Double, t.Phantom)
}

// Faults is what was done to the services.
type Faults struct {
	Kills     int // SIGKILLs of producers, consumers and jobs
	Dropped   int // end-transaction requests that the wire swallowed
	Repeats   int // messages delivered again
	Sweeps    int // records set free because their lease was over
	Takeovers int // records taken from a worker whose lease was over
	Stops     int // workers that stood still until that happened
	Outages   int // servers that died and came back
}

// String is the line before the last.
func (f Faults) String() string {
	line := fmt.Sprintf("kills=%d dropped=%d repeats=%d sweeps=%d takeovers=%d",
		f.Kills, f.Dropped, f.Repeats, f.Sweeps, f.Takeovers)
	if f.Outages > 0 {
		line += fmt.Sprintf(" stops=%d outages=%d", f.Stops, f.Outages)
	}
	return line
}

// Books is what else has to agree.
type Books struct {
	Logged   int   // rows of the transaction log that say COMMITTED
	Waiting  int   // orders still NEW
	Stuck    int   // orders still PAID
	Open     int   // consume records that are not SUCCESS
	Shares   int64 // sum of all shares
	Balance  int64 // the partner's balance
	PerOrder int64 // what the partner gets for an order
}

// Verdict says everything that is wrong with a run; nothing, if it is good.
func Verdict(t Tally, f Faults, b Books, minCommitted int) (wrong []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(t.Lost == 0, "%d paid orders are without a share (lost)", t.Lost)
	check(t.Double == 0, "%d orders have more than one share (double)", t.Double)
	check(t.Phantom == 0, "%d shares are of orders that are not paid (phantom)", t.Phantom)
	check(t.Committed >= minCommitted, "only %d orders committed, want at least %d", t.Committed, minCommitted)
	check(t.RolledBack > 0, "no order was rolled back")
	check(t.Delivered == t.Committed, "%d events were delivered of %d that committed", t.Delivered, t.Committed)
	check(b.Logged == t.Committed, "the transaction log has %d events, %d orders are paid", b.Logged, t.Committed)
	check(b.Waiting == 0, "%d orders are still NEW", b.Waiting)
	check(b.Stuck == 0, "%d orders are stuck in PAID", b.Stuck)
	check(b.Open == 0, "%d consume records are not SUCCESS", b.Open)
	due := int64(t.Committed) * b.PerOrder
	check(b.Shares == due && b.Balance == due,
		"money does not add up: %d of shares, a balance of %d, %d due", b.Shares, b.Balance, due)
	check(f.Kills > 0, "nothing was killed")
	check(f.Dropped > 0, "no end-transaction was dropped")
	check(f.Repeats > 0, "no message was delivered again")
	check(f.Sweeps > 0, "no record was swept")
	check(f.Takeovers > 0, "no record was taken over")
	return wrong
}

// number runs a query whose answer is one whole number.
func number(ctx context.Context, db *gorm.DB, query string, args ...any) (int, error) {
	c := &counter{db: db.WithContext(ctx)}
	return c.count(query, args...), c.err
}

// counter gathers numbers and the first error.
type counter struct {
	db  *gorm.DB
	err error
}

func (c *counter) count(query string, args ...any) int {
	return int(c.sum(query, args...))
}

func (c *counter) sum(query string, args ...any) int64 {
	if c.err != nil {
		return 0
	}
	var n int64
	c.err = c.db.Raw(query, args...).Row().Scan(&n)
	return n
}

// paidOrders is the WHERE of an order o that is paid.
const paidOrders = "o.status IN ('PAID', 'SHARING')"

// ours counts what came of the orders in the profit-sharing service. delivered
// is the table that knows each delivered event.
func (d *demo) ours(ctx context.Context) (t Tally, b Books, err error) {
	c := &counter{db: d.db.WithContext(ctx)}
	delivered := "t_msg_consume"
	if d.cfg.WithoutDedup {
		delivered = "plain_deliveries"
	} else {
		b.Open = c.count("SELECT COUNT(*) FROM t_msg_consume WHERE status <> 'SUCCESS'")
	}
	t = Tally{
		Committed:  c.count("SELECT COUNT(*) FROM orders o WHERE " + paidOrders),
		RolledBack: c.count("SELECT COUNT(*) FROM orders WHERE status = 'REFUSED'"),
		Delivered:  c.count("SELECT COUNT(DISTINCT event_id) FROM " + delivered),
		Effects:    c.count("SELECT COUNT(*) FROM shares"),
		Lost: c.count("SELECT COUNT(*) FROM orders o WHERE " + paidOrders +
			" AND NOT EXISTS (SELECT 1 FROM shares s WHERE s.order_no = o.no)"),
		Double: c.count("SELECT COUNT(*) FROM (SELECT order_no FROM shares GROUP BY order_no HAVING COUNT(*) > 1) twice"),
		Phantom: c.count("SELECT COUNT(*) FROM shares s WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.no = s.order_no AND " +
			paidOrders + ")"),
	}
	b.Logged = c.count("SELECT COUNT(DISTINCT event_id) FROM t_tx_log WHERE state = 'COMMITTED'")
	b.Waiting = c.count("SELECT COUNT(*) FROM orders WHERE status = 'NEW'")
	b.Stuck = c.count("SELECT COUNT(*) FROM orders WHERE status = 'PAID'")
	b.Shares = c.sum("SELECT COALESCE(SUM(cents), 0) FROM shares")
	b.Balance = c.sum("SELECT cents FROM balances")
	b.PerOrder = shareCents
	return t, b, c.err
}

// naive counts the same in the hand-written consumer's tables. An effect there
// is a share that got through to DONE; one that stays PROCESSING has no money
// behind it.
func (d *demo) naive(ctx context.Context) (t Tally, err error) {
	c := &counter{db: d.db.WithContext(ctx)}
	return Tally{
		Committed:  c.count("SELECT COUNT(*) FROM orders o WHERE " + paidOrders),
		RolledBack: c.count("SELECT COUNT(*) FROM orders WHERE status = 'REFUSED'"),
		Delivered:  c.count("SELECT COUNT(DISTINCT order_no) FROM naive_shares"),
		Effects:    c.count("SELECT COUNT(*) FROM naive_shares WHERE status = 'DONE'"),
		Lost: c.count("SELECT COUNT(*) FROM orders o WHERE " + paidOrders +
			" AND NOT EXISTS (SELECT 1 FROM naive_shares s WHERE s.order_no = o.no AND s.status = 'DONE')"),
		Double: c.count("SELECT COUNT(*) FROM (SELECT order_no FROM naive_shares WHERE status = 'DONE'" +
			" GROUP BY order_no HAVING COUNT(*) > 1) twice"),
		Phantom: c.count("SELECT COUNT(*) FROM naive_shares s WHERE s.status = 'DONE'" +
			" AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.no = s.order_no AND " + paidOrders + ")"),
	}, c.err
}

// leases counts the leases that ran out, by what they leave in the records: a
// sweep writes last_error, and a record that changed hands without any error
// was taken over.
func (d *demo) leases(ctx context.Context) (sweeps, takeovers int, err error) {
	c := &counter{db: d.db.WithContext(ctx)}
	sweeps = c.count("SELECT COUNT(*) FROM t_msg_consume WHERE last_error LIKE 'swept:%'")
	takeovers = c.count("SELECT COUNT(*) FROM t_msg_consume WHERE version > 1 AND last_error = ''")
	return sweeps, takeovers, c.err
}
