package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Outage is a server that dies in the middle of the orders and comes back, for
// runs that have servers of their own. The demo plays none.
type Outage struct {
	// Name is what the lines of the run call it.
	Name string
	// Times is how often.
	Times int
	// Kill returns when it is gone, Up when it answers again.
	Kill, Up func(context.Context) error
}

const (
	// awayAtMost is how long a server stays away; its start comes to that.
	awayAtMost = 2 * time.Second
	// newcomers are the orders that come in when it is back.
	newcomers = 12
	// recovery is what the services may take to find it again. A client's next
	// heart-beat comes within 30 s, and a restarted broker knows nobody before.
	recovery = 75 * time.Second
)

// outage kills the server while orders are paid and shared, brings it back, and
// waits until new orders come through: each outage hits services at work.
func (d *demo) outage(o Outage) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := d.moment(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		if err := o.Kill(ctx); err != nil {
			return err
		}
		died := time.Now()
		if err := d.moment(ctx, awayAtMost); err != nil {
			return err
		}
		if err := o.Up(ctx); err != nil {
			return err
		}
		d.faults.Outages++
		d.say("  kill -9 %s, back after %.1fs", o.Name, time.Since(died).Seconds())
		return d.recovered(ctx, o.Name)
	}
}

// recovered places some orders and waits until each has come to its end.
func (d *demo) recovered(ctx context.Context, name string) error {
	back, first := time.Now(), fmt.Sprintf("A%05d", d.placed+1)
	if err := d.place(ctx, newcomers); err != nil {
		return err
	}
	left := 0
	err := until(ctx, recovery, func() (done bool, err error) {
		left, err = number(ctx, d.db, "SELECT COUNT(*) FROM orders WHERE status IN ('NEW', 'PAID') AND no >= ?", first)
		return left == 0, err
	})
	if errors.Is(err, errNotYet) {
		return fmt.Errorf("%w: %v after the return of %s, %d of %d new orders are still under way", ErrBroken, recovery, name, left, newcomers)
	}
	d.say("  %d new orders went through %.1fs after its return", newcomers, time.Since(back).Seconds())
	return err
}
