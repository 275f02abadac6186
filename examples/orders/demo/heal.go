package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/examples/orders/shop"
)

// repeat sends the messages of some events again, as they were: what a
// producer's retry, an operator's replay or a second broker does. The copies go
// to one queue after the other.
func (d *demo) repeat(ctx context.Context, events []string) error {
	if len(events) == 0 {
		return nil
	}
	numbers := make([]string, len(events))
	for i, e := range events {
		numbers[i] = strings.TrimPrefix(e, "pay:")
	}
	var paid []struct {
		shop.Order
		Attempt    string
		DatabaseID string
		Born       int64
	}
	err := d.db.WithContext(ctx).Raw(`SELECT o.*, l.attempt, m.value AS database_id,
			CAST(UNIX_TIMESTAMP(l.created_at) * 1000 AS SIGNED) AS born
		FROM orders o
		JOIN t_tx_log l ON l.event_id = CONCAT('pay:', o.no) AND l.state = 'COMMITTED'
		JOIN t_meta m ON m.name = 'database_id'
		WHERE o.no IN ?`, numbers).Scan(&paid).Error
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(4)
	for _, p := range paid {
		m, err := d.shop().PaidMessage(p.Order)
		if err != nil {
			return err
		}
		group.Go(func() error {
			_, err := d.sender.Send(ctx, m, map[string]string{
				txmq.PropertyAttempt: p.Attempt, txmq.PropertyDatabaseID: p.DatabaseID,
				txmq.PropertyBorn: fmt.Sprint(p.Born),
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.faults.Repeats += len(paid)
	return nil
}

// repeatSome repeats n random events, or all with n = 0, of those whose effect
// is there: a copy of another would make good for a message that was lost.
func (d *demo) repeatSome(ctx context.Context, n int) (int, error) {
	var events []string
	err := d.db.WithContext(ctx).Raw("SELECT CONCAT('pay:', no) FROM orders WHERE status = 'SHARING' ORDER BY id").Scan(&events).Error
	if err != nil {
		return 0, err
	}
	d.rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	if n > 0 && n < len(events) {
		events = events[:n]
	}
	return len(events), d.repeat(ctx, events)
}

// healTime is what a shop may take to put all in order. The longest are a half
// message whose producer died, and a delivery that waits for a dead worker.
const healTime = 75 * time.Second

// heal lets the wire alone, waits until every order has come to its end, has
// each message delivered once more, and waits until that is worked off too.
func (d *demo) heal(ctx context.Context) error {
	for _, h := range d.drops {
		h.Remove()
	}
	d.say("the wire is well again; waiting until every order has come to its end")
	if ok, err := d.settled(ctx); !ok || err != nil {
		return err
	}
	n, err := d.repeatSome(ctx, 0)
	if err != nil {
		return err
	}
	d.say("all %d messages are delivered once more", n)
	_, err = d.settled(ctx)
	return err
}

// settled waits until nothing is under way. When that takes too long it gives
// false: the tally will tell what is missing.
func (d *demo) settled(ctx context.Context) (bool, error) {
	reported := time.Now()
	state := ""
	err := until(ctx, healTime, func() (bool, error) {
		if err := d.troupe.err(); err != nil {
			return false, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		t, b, err := d.ours(ctx)
		if err != nil {
			return false, err
		}
		if b.Waiting+b.Stuck+b.Open+t.Lost > 0 {
			state = fmt.Sprintf("%d orders are NEW, %d PAID, %d without a share, %d records open", b.Waiting, b.Stuck, t.Lost, b.Open)
		} else {
			// The hand-written consumer gets its time too.
			ours, err := d.lag(ctx, d.shop().ShareGroup())
			if err != nil {
				return false, err
			}
			naive, err := d.lag(ctx, naiveGroup(d.shop()))
			if err != nil || ours+naive == 0 {
				return true, err
			}
			state = fmt.Sprintf("not acknowledged yet: %d messages, by the hand-written consumer %d", ours, naive)
		}
		if time.Since(reported) > 5*time.Second {
			reported = time.Now()
			d.say("  %s", state)
		}
		return false, pause(ctx, 200*time.Millisecond)
	})
	if errors.Is(err, errNotYet) {
		d.say("not settled after %v: %s", healTime, state)
		return false, nil
	}
	return err == nil, err
}
