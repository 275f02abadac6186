package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txmq/txmq/examples/orders/shop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

// scene is one thing that goes wrong while orders come in.
type scene struct {
	name string
	play func(context.Context) error
}

// play goes through the scenes in a random order, and then repeats those whose
// fault has not come about.
func (d *demo) play(ctx context.Context) error {
	killOrders := scene{"the order service dies while it pays", d.killOrders}
	killShares := scene{"a profit-sharing consumer dies at its work", d.killShares}
	sweep := scene{"a consumer dies, and its work is swept", d.sweep}
	takeover := scene{"a consumer stands still past its lease, and wakes up", d.takeover}
	var deck []scene
	for range d.cfg.Scenes {
		deck = append(deck, killOrders, killShares)
		if !d.cfg.WithoutDedup { // without records there are no leases
			deck = append(deck, sweep, takeover)
		}
	}
	for range d.cfg.Stops - d.cfg.Scenes {
		deck = append(deck, takeover)
	}
	for _, o := range d.cfg.Outages {
		for range o.Times {
			deck = append(deck, scene{o.Name + " dies and comes back", d.outage(o)})
		}
	}
	d.rand.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	for i, s := range deck {
		if err := d.scene(ctx, s, max(0, d.cfg.Orders*(i+1)/len(deck)-d.placed)); err != nil {
			return err
		}
	}
	return d.encores(ctx, sweep, takeover, killOrders)
}

// encores plays the scenes again whose faults have not come about yet.
func (d *demo) encores(ctx context.Context, sweep, takeover, drop scene) error {
	const orders = 20
	for range 5 + d.cfg.Stops {
		if err := d.count(ctx); err != nil {
			return err
		}
		var again scene
		switch {
		case d.faults.Sweeps == 0 && !d.cfg.WithoutDedup:
			again = sweep
		case d.faults.Takeovers == 0 && !d.cfg.WithoutDedup, d.faults.Stops < d.cfg.Stops:
			again = takeover
		case d.faults.Dropped == 0:
			again = drop
		default:
			return nil
		}
		if err := d.scene(ctx, again, orders); err != nil {
			return err
		}
	}
	return nil
}

// scene lets orders come in, loses some end-transactions, plays, and delivers a
// few messages again.
func (d *demo) scene(ctx context.Context, s scene, orders int) error {
	if err := d.troupe.err(); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	drops := 2 + d.rand.IntN(4)
	d.drops = append(d.drops, d.proxy.Inject(wireproxy.Fault{
		Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: drops, Skip: d.rand.IntN(4),
	}))
	d.say("%s; %d orders come in, the next %d end-transactions are lost", s.name, orders, drops)
	if err := d.place(ctx, orders); err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	n, err := d.repeatSome(ctx, 8)
	if err != nil {
		return err
	}
	d.say("  %d messages are delivered again", n)
	return nil
}

// place adds orders: half of them from the market, every tenth above what the
// shop may take.
func (d *demo) place(ctx context.Context, n int) error {
	orders := make([]shop.Order, n)
	for i := range orders {
		d.placed++
		o := shop.Order{No: fmt.Sprintf("A%05d", d.placed), Channel: shop.Web, Cents: 50_00, Status: shop.New}
		if d.placed%4 < 2 {
			o.Channel = shop.Market
		}
		if d.placed%10 == 0 {
			o.Cents = shop.CreditCents + 1
		}
		orders[i] = o
	}
	return d.db.WithContext(ctx).CreateInBatches(orders, 100).Error
}

// moment is a random time within which something dies.
func (d *demo) moment(ctx context.Context, limit time.Duration) error {
	return pause(ctx, time.Duration(d.rand.Int64N(int64(limit))))
}

// kill kills a service of the shop with kill -9.
func (d *demo) kill(ctx context.Context, a *actor, why string) error {
	pid := a.pid()
	if err := a.kill(ctx); err != nil {
		return err
	}
	d.faults.Kills++
	d.say("  kill -9 %s (pid %d) %s", a.name, pid, why)
	return nil
}

// killOrders kills the order service twice: in the middle of the orders that
// came in, and as soon as its next process has begun with the rest.
func (d *demo) killOrders(ctx context.Context) error {
	for range 2 {
		if err := d.moment(ctx, 150*time.Millisecond); err != nil {
			return err
		}
		n, err := number(ctx, d.db, "SELECT COUNT(*) FROM orders WHERE status = 'NEW'")
		if err != nil {
			return err
		}
		if err := d.kill(ctx, d.orders, fmt.Sprintf("with %d orders to pay", n)); err != nil {
			return err
		}
		if err := d.orders.again(); err != nil {
			return err
		}
		// It takes a while to start.
		if err := until(ctx, 3*time.Second, func() (bool, error) {
			left, err := number(ctx, d.db, "SELECT COUNT(*) FROM orders WHERE status = 'NEW'")
			return left < n, err
		}); ignoreNotYet(err) != nil {
			return err
		}
	}
	return nil
}

// killShares kills a consumer and the hand-written one, in the middle of their
// work where that can be seen.
func (d *demo) killShares(ctx context.Context) error {
	target := d.shares[d.rand.IntN(len(d.shares))]
	if err := d.killNaive(ctx); err != nil {
		return err
	}
	if err := d.moment(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	if err := d.kill(ctx, target, "while it shares"); err != nil {
		return err
	}
	if err := d.moment(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	return errors.Join(target.again(), pause(ctx, time.Second))
}

// killNaive kills the hand-written consumer in the middle of its work too.
func (d *demo) killNaive(ctx context.Context) error {
	const halfDone = "SELECT COUNT(*) FROM naive_shares WHERE status = 'PROCESSING'"
	if _, err := d.eventually(ctx, 3*time.Second, halfDone+" AND order_no > ?", d.naiveKilled); err != nil {
		return err
	}
	if err := d.naively.kill(ctx); err != nil {
		return err
	}
	n, err := number(ctx, d.db, halfDone)
	if err != nil {
		return err
	}
	// What it left half done stays so; the next kill waits for other orders.
	d.naiveKilled = fmt.Sprintf("A%05d", d.placed)
	d.say("  kill -9 naive, which leaves %d rows half done in all", n)
	return d.naively.again()
}

// eventually waits until the query's number is above 0, or for patience, and
// returns it.
func (d *demo) eventually(ctx context.Context, patience time.Duration, query string, args ...any) (n int, err error) {
	err = until(ctx, patience, func() (bool, error) {
		n, err = number(ctx, d.db, query, args...)
		return n > 0, err
	})
	return n, ignoreNotYet(err)
}

// held is the WHERE of the records that a process works on.
const held = "status = 'PROCESSING' AND owner LIKE CONCAT('%:', ?, ':%')"

// awaitWork waits until a consumer holds some records, better more than one.
func (d *demo) awaitWork(ctx context.Context, a *actor) (n int, err error) {
	if _, err = d.eventually(ctx, 5*time.Second, "SELECT COUNT(*) FROM t_msg_consume WHERE "+held, a.pid()); err != nil {
		return 0, err
	}
	if err = d.moment(ctx, 80*time.Millisecond); err != nil {
		return 0, err
	}
	return d.eventually(ctx, 2*time.Second, "SELECT COUNT(*) FROM t_msg_consume WHERE "+held, a.pid())
}

// sweep kills a consumer that holds records, and starts the next one only when
// the sweep has set one of them free.
func (d *demo) sweep(ctx context.Context) error {
	target := d.shares[d.rand.IntN(len(d.shares))]
	pid := target.pid()
	n, err := d.awaitWork(ctx, target)
	if err != nil {
		return err
	}
	if err := d.kill(ctx, target, fmt.Sprintf("with %d market orders in its hands", n)); err != nil {
		return err
	}
	swept := 0
	if n > 0 {
		swept, err = d.eventually(ctx, 8*time.Second,
			"SELECT COUNT(*) FROM t_msg_consume WHERE last_error LIKE CONCAT('swept:%:', ?, ':%')", pid)
		if err != nil {
			return err
		}
	}
	d.say("  the lease of %d of them ran out and was swept", swept)
	return target.again()
}

// takeover stops a consumer in the middle of its work, with the sweep away,
// delivers what it holds to the other one when the leases are over, and lets it
// go on, not knowing what happened.
func (d *demo) takeover(ctx context.Context) error {
	if err := d.kill(ctx, d.jobs, "so that nobody sweeps"); err != nil {
		return err
	}
	target := d.shares[d.rand.IntN(len(d.shares))]
	if _, err := d.awaitWork(ctx, target); err != nil {
		return err
	}
	if err := target.stop(); err != nil {
		return err
	}
	taken, err := d.overtake(ctx, target.pid())
	if err := errors.Join(err, target.wake(), d.jobs.again()); err != nil {
		return err
	}
	if taken > 0 {
		d.faults.Stops++
	}
	d.say("  %s (pid %d) stood still, %d market orders were taken over from it, and it wakes up", target.name, target.pid(), taken)
	return nil
}

func (d *demo) overtake(ctx context.Context, pid int) (taken int, err error) {
	_, before, err := d.leases(ctx)
	if err != nil {
		return 0, err
	}
	var events []string
	err = until(ctx, 6*time.Second, func() (bool, error) {
		var open int
		open, err = number(ctx, d.db, "SELECT COUNT(*) FROM t_msg_consume WHERE "+held, pid)
		if err != nil || open == 0 {
			return true, err
		}
		err = d.db.WithContext(ctx).Raw("SELECT event_id FROM t_msg_consume WHERE "+held+
			" AND lease_until <= UTC_TIMESTAMP(3) LIMIT 3", pid).Scan(&events).Error
		return len(events) > 0, err
	})
	if err != nil || len(events) == 0 {
		return 0, ignoreNotYet(err)
	}
	for range queues { // one of them is the other consumer's
		if err := d.repeat(ctx, events); err != nil {
			return 0, err
		}
	}
	err = until(ctx, 6*time.Second, func() (bool, error) {
		_, now, err := d.leases(ctx)
		taken = now - before
		return taken > 0, err
	})
	return taken, ignoreNotYet(err)
}

func ignoreNotYet(err error) error {
	if errors.Is(err, errNotYet) {
		return nil
	}
	return err
}
