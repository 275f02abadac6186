package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMistakesOfHandlersCount(t *testing.T) {
	t.Parallel()
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onMariaDB(t)
			dead := func(t *testing.T, id string, fn Func, change ...func(*Config)) {
				t.Helper()
				c := b.consumer(t, mode(fn), append(change, func(c *Config) { c.MaxAttempts = 2 })...)
				want(t, c.deliver(t.Context(), message(id, "x")), rocketmq.Retry)
				want(t, c.deliver(t.Context(), message(id, "x")), rocketmq.DeadLetter)
				if r := b.record(t, id); r.Status != model.Dead {
					t.Errorf("record = %+v, want DEAD", r)
				}
			}
			t.Run("a function that does not exist", func(t *testing.T) {
				dead(t, "nw", func(_ context.Context, tx *gorm.DB, _ *Delivery) error {
					return tx.Exec("UPDATE accounts SET name = nw()").Error
				})
			})
			t.Run("a time limit of its own", func(t *testing.T) {
				dead(t, "slow", func(ctx context.Context, tx *gorm.DB, _ *Delivery) error {
					ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
					defer cancel()
					return tx.WithContext(ctx).Exec("SELECT SLEEP(1)").Error
				})
			})
			t.Run("rows left open do no harm", func(t *testing.T) {
				for i := range 60 {
					b.db.Create(&account{Name: strings.Repeat("x", i)})
				}
				c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
					if err := pay(ctx, tx, d); err != nil {
						return err
					}
					rows, err := tx.Model(&account{}).Rows() // the mistake: nobody closes them
					if err != nil {
						return err
					}
					rows.Next()
					return nil
				}))
				want(t, c.deliver(t.Context(), message("rows", "x")), rocketmq.Ack)
				if n := b.effects(t, "rows"); n != 1 {
					t.Errorf("effects = %d, want 1", n)
				}
			})
			t.Run("an EventID function that panics", func(t *testing.T) {
				c := b.consumer(t, mode(pay), func(c *Config) {
					c.Handlers[0].EventID = func(*primitive.MessageExt) string { panic("no key") }
				})
				want(t, c.deliver(t.Context(), message("x", "x")), rocketmq.DeadLetter)
				rows, err := b.store.Records(t.Context(), model.Filter{Status: model.Dead})
				if err != nil || len(rows) == 0 || !strings.Contains(rows[len(rows)-1].LastError, "no key") {
					t.Errorf("DEAD rows = %+v, %v, want one that tells", rows, err)
				}
			})
		})
	}
}

func TestWaitsBeforeTheHandler(t *testing.T) {
	t.Parallel()
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, sqlite.Open(testenv.SQLite(t)), &gorm.Config{})
			pool, err := b.db.DB()
			if err != nil {
				t.Fatal(err)
			}
			pool.SetMaxOpenConns(1)
			once := func(c *Config) { c.MaxAttempts, c.Deadline = 1, 300*time.Millisecond }

			t.Run("a connection that comes late leaves the handler its whole deadline", func(t *testing.T) {
				taken, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
					until, ok := ctx.Deadline()
					if left := time.Until(until); !ok || left < 200*time.Millisecond {
						t.Errorf("handler has %v left, want its whole 300ms", left)
					}
					return pay(ctx, tx, d)
				}), once)
				time.AfterFunc(250*time.Millisecond, func() { _ = taken.Close() })
				want(t, c.deliver(t.Context(), message("late", "x")), rocketmq.Ack)
			})
			t.Run("one that does not come costs no attempt", func(t *testing.T) {
				taken, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c := b.consumer(t, mode(pay), once)
				want(t, c.deliver(t.Context(), message("never", "x")), rocketmq.Retry)
				_ = taken.Close()
				want(t, c.deliver(t.Context(), message("never", "x")), rocketmq.Ack)
			})
		})
	}
}

// The time before the handler may run out at the moment when it begins.
func TestAHandlerThatCouldHardlyBeginCostsNothing(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	c := b.consumer(t, Atomic(pay), func(c *Config) { c.MaxAttempts = 1 })
	r := c.arrived(message("hardly", "x"))
	if err := r.name(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errNotBegun)
	want(t, r.failed(ctx, t.Context(), ctx.Err()).result, rocketmq.Retry)
	if rec := b.record(t, "hardly"); rec.Status != "" {
		t.Errorf("record = %+v, want none", rec)
	}
}

func TestKeyOfAHungHolderIsFree(t *testing.T) {
	t.Parallel()
	l := newKeyLock()
	release, err := l.take(t.Context(), eventKey{"c", "k"}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	next, err := l.take(t.Context(), eventKey{"c", "k"}, time.Minute) // waits for the holder to lose its turn
	if err != nil {
		t.Fatal(err)
	}
	release() // the hung one wakes: it must not free the next one's turn
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.take(short, eventKey{"c", "k"}, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("take beside a holder = %v, want DeadlineExceeded", err)
	}
	next()
	if len(l.held) != 0 {
		t.Errorf("%d keys are kept, want none", len(l.held))
	}
}
