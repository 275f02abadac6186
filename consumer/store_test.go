package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// tenants is a consumer of two topics, each topic's handler on a database of its
// own: topics order-paid (first) and order-paid-2 (second). first goes through
// a cutter.
func tenants(t *testing.T, mode func(Func) Work, fn Func) (c *Consumer, first, second *bundle, wall *cutter) {
	t.Helper()
	through, wall := throughCutter(t)
	first, second = setup(t, through, &gorm.Config{}), onMariaDB(t)
	c = second.consumer(t, mode(fn), func(c *Config) {
		c.Store = nil
		c.Handlers = []Handler{
			{Topic: "order-paid", Do: mode(fn), Store: first.store},
			{Topic: "order-paid-2", Do: mode(fn), Store: second.store},
		}
		c.Lease, c.Deadline = 3*time.Second, 2900*time.Millisecond
	})
	return c, first, second, wall
}

func toSecond(ctx context.Context, c *Consumer, id string) rocketmq.Result {
	m := message(id, "x")
	m.Topic = "order-paid-2"
	return c.deliver(ctx, m)
}

func TestStoreOfAHandler(t *testing.T) {
	t.Parallel()
	for name, mode := range modes() {
		t.Run(name+" two databases, each with its own records and effects", func(t *testing.T) {
			t.Parallel()
			c, first, second, wall := tenants(t, mode, pay)
			ctx := t.Context()
			want(t, c.deliver(ctx, message("a", "x")), rocketmq.Ack)
			want(t, toSecond(ctx, c, "a"), rocketmq.Ack)
			for _, b := range []*bundle{first, second} {
				if n := b.effects(t, "a"); n != 1 {
					t.Errorf("effects = %d, want 1 in each", n)
				}
				rows, err := b.store.Records(ctx, model.Filter{})
				if err != nil || len(rows) != 1 || rows[0].Status != model.Success {
					t.Errorf("records = %+v, %v, want one SUCCESS", rows, err)
				}
			}

			wall.cut(cutAll)
			want(t, c.deliver(ctx, message("b", "x")), rocketmq.Retry)
			want(t, toSecond(ctx, c, "b"), rocketmq.Ack)
			wall.cut(cutNothing)
			untilAck(ctx, c, "b")
			if n, m := first.effects(t, "b"), second.effects(t, "b"); n != 1 || m != 1 {
				t.Errorf("effects = %d and %d, want 1 in each", n, m)
			}
		})
	}

	t.Run("a failure and a heartbeat go to the handler's database", func(t *testing.T) {
		t.Parallel()
		var second *bundle
		renewed := func(ctx context.Context) error {
			var first model.Time
			for ctx.Err() == nil {
				r, err := second.store.Find(ctx, "b", "shares:order-paid-2")
				if err != nil || !first.IsZero() && !r.LeaseUntil.Equal(first.Time) {
					return err
				}
				first = r.LeaseUntil
			}
			return ctx.Err()
		}
		var c *Consumer
		var first *bundle
		var wall *cutter
		c, first, second, wall = tenants(t, Tracked, func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
			if d.Topic == "order-paid" {
				return Permanent(errGone)
			}
			wall.cut(cutAll) // the first's heartbeat, too, has no connection now
			if err := renewed(ctx); err != nil {
				return err
			}
			return pay(ctx, tx, d)
		})
		want(t, c.deliver(t.Context(), message("a", "x")), rocketmq.DeadLetter)
		if r := first.record(t, "a"); r.Status != model.Dead {
			t.Errorf("record = %+v, want DEAD in the first", r)
		}
		want(t, toSecond(t.Context(), c, "b"), rocketmq.Ack)
		if n := second.effects(t, "b"); n != 1 {
			t.Errorf("effects = %d, want 1", n)
		}
		if lost := seen[txmq.LeaseLost](second); len(lost) != 0 {
			t.Errorf("leases lost = %v, want none", lost)
		}
	})
}

func TestStoreIsRequired(t *testing.T) {
	t.Parallel()
	b := setup(t, sqlite.Open(testenv.SQLite(t)), &gorm.Config{})
	cfg := Config{Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "g", Handlers: []Handler{
		{Topic: "a", Do: Atomic(pay), Store: b.store}, {Topic: "b", Do: Atomic(pay)},
	}}
	if _, err := New(cfg); !namesField(err, "consumer.Config.Store") {
		t.Errorf("New with one store of two = %v, want the missing one named", err)
	}
	cfg.Handlers[1].Store = b.store
	if _, err := New(cfg); err != nil {
		t.Errorf("New with a store for each = %v", err)
	}
}
