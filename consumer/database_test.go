package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestTransactionIsTxmqs(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		ctx := t.Context()
		// misused runs a handler that does something forbidden after paying.
		misused := func(t *testing.T, id, kind string, do func(tx *gorm.DB) error) {
			t.Helper()
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if err := pay(ctx, tx, d); err != nil {
					return err
				}
				_ = do(tx) // swallowed
				return nil
			}))
			want(t, c.deliver(ctx, message(id, "x")), rocketmq.Retry)
			if n := b.effects(t, id); n != 0 {
				t.Errorf("%s: effects = %d, want 0", id, n)
			}
			if r := b.record(t, id); r.Status != model.Fail || !strings.Contains(r.LastError, kind) {
				t.Errorf("%s: record = %+v, want FAIL that names %s", id, r, kind)
			}
		}
		t.Run("B75 a handler that commits or rolls back is not acknowledged", func(t *testing.T) {
			misused(t, "commit", "COMMIT", func(tx *gorm.DB) error { return tx.Commit().Error })
			misused(t, "rollback", "ROLLBACK", func(tx *gorm.DB) error { return tx.Rollback().Error })
		})
		t.Run("B81 DDL and transaction statements are refused", func(t *testing.T) {
			for kind, statement := range map[string]string{
				"CREATE": "CREATE TABLE other (id INT)", "TRUNCATE": "/* quick */ truncate entries", "COMMIT": " commit",
				"BEGIN": "BEGIN", "ROLLBACK": "SELECT 1; ROLLBACK", "CALL": "call settle(1)", "SET AUTOCOMMIT": "SET autocommit = 1",
			} {
				misused(t, "ddl:"+kind, kind, func(tx *gorm.DB) error { return tx.Exec(statement).Error })
			}
		})
		t.Run("B75 a handler that keeps its transaction can't use it", func(t *testing.T) {
			var kept *gorm.DB
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				kept = tx
				return pay(ctx, tx, d)
			}))
			want(t, c.deliver(ctx, message("kept", "x")), rocketmq.Ack)
			if err := kept.Create(&entry{EventID: "late"}).Error; !errors.Is(err, txmq.ErrTxMisused) {
				t.Errorf("use after return = %v, want ErrTxMisused", err)
			}
			if n := b.effects(t, "late"); n != 0 {
				t.Errorf("effects = %d, want 0", n)
			}
		})
	})
}

func TestManyWorkers(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		ctx := t.Context()
		t.Run("B33 first deliveries of different keys in one gap see no deadlock", func(t *testing.T) {
			c := b.consumer(t, mode(func(_ context.Context, tx *gorm.DB, d *Delivery) error {
				return tx.Create(&account{Name: d.EventID}).Error
			}))
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() { want(t, c.deliver(ctx, message(fmt.Sprintf("gap:%d", i), "x")), rocketmq.Ack) })
			}
			wg.Wait()
			for _, d := range seen[txmq.Delivered](b) {
				if d.Err != nil {
					t.Errorf("delivery of %s: %v", d.EventID, d.Err)
				}
			}
		})
		t.Run("one key, eight processes, failures: one effect", func(t *testing.T) {
			var wg sync.WaitGroup
			for i := range 8 {
				runs := 0
				c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
					if runs++; runs%2 == 1 && i%2 == 0 {
						return errors.New("now and then")
					}
					return pay(ctx, tx, d)
				}), func(c *Config) { c.MaxAttempts = 1000 })
				wg.Go(func() {
					untilAck(ctx, c, "hot")
				})
			}
			wg.Wait()
			if n := b.effects(t, "hot"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
			for _, d := range seen[txmq.Delivered](b) {
				if b.store.Deadlock(d.Err) {
					t.Errorf("a deadlock shows: %v", d.Err)
				}
			}
		})
		t.Run("B76 a pool smaller than the workers is slower, no more", func(t *testing.T) {
			pool, err := b.db.DB()
			if err != nil {
				t.Fatal(err)
			}
			pool.SetMaxOpenConns(5)
			defer pool.SetMaxOpenConns(32)
			before := b.effects(t, "")
			c := b.consumer(t, mode(pay), func(c *Config) { c.Workers = 20 })
			var wg sync.WaitGroup
			for w := range 20 {
				wg.Go(func() {
					for i := range 5 {
						untilAck(ctx, c, fmt.Sprintf("pool:%d:%d", w, i))
					}
				})
			}
			wg.Wait()
			if n := b.effects(t, "") - before; n != 100 {
				t.Errorf("effects = %d, want 100", n)
			}
			if lost := seen[txmq.LeaseLost](b); len(lost) != 0 {
				t.Errorf("leases lost = %v, want none", lost)
			}
		})
	})
}

func TestForeignProducers(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	foreign := func(key, tag, body string) func(*Consumer) rocketmq.Result {
		m := message("", body)
		m.WithKeys([]string{key})
		m.WithTag(tag)
		return func(c *Consumer) rocketmq.Result { return c.deliver(t.Context(), m) }
	}
	t.Run("B72 KEYS are no event ID unless one asks for it", func(t *testing.T) {
		c := b.consumer(t, Atomic(pay))
		want(t, foreign("order-1", "created", "a")(c), rocketmq.DeadLetter) // in sight, none lost as a duplicate
		want(t, foreign("order-1", "paid", "b")(c), rocketmq.DeadLetter)
		opted := b.consumer(t, Atomic(pay), func(c *Config) { c.Handlers[0].EventID = FromKeyAndTag })
		want(t, foreign("order-1", "created", "a")(opted), rocketmq.Ack)
		want(t, foreign("order-1", "paid", "b")(opted), rocketmq.Ack)
		if n := b.effects(t, ""); n != 2 {
			t.Errorf("effects = %d, want both", n)
		}
	})
	t.Run("FromKey refuses several keys", func(t *testing.T) {
		m := message("", "x")
		m.WithKeys([]string{"a", "b"})
		if got := FromKey(m); got != "" {
			t.Errorf("FromKey = %q, want none", got)
		}
	})
}

func TestDatabaseTrouble(t *testing.T) {
	t.Parallel()
	t.Run("B35 a deadlock that the handler swallows commits nothing and costs no attempt", func(t *testing.T) {
		t.Parallel()
		for name, mode := range modes() {
			t.Run(name, func(t *testing.T) {
				b := onMariaDB(t)
				swallowDeadlock(t, b, mode)
			})
		}
	})
	t.Run("B74 a database away for many deliveries costs no attempts", func(t *testing.T) {
		t.Parallel()
		for name, mode := range modes() {
			t.Run(name, func(t *testing.T) {
				through, wall := throughCutter(t)
				b := setup(t, through, &gorm.Config{})
				c := b.consumer(t, mode(pay), func(c *Config) { c.MaxAttempts = 3 })
				wall.cut(cutAll)
				for range 20 {
					want(t, c.deliver(t.Context(), message("away", "x")), rocketmq.Retry)
				}
				wall.cut(cutNothing)
				untilAck(t.Context(), c, "away")
				if n := b.effects(t, "away"); n != 1 {
					t.Errorf("effects = %d, want 1", n)
				}
				if r := b.record(t, "away"); r.Status != model.Success || r.RetryCnt != 0 {
					t.Errorf("record = %+v, want SUCCESS in one counted run", r)
				}
			})
		}
	})
	t.Run("B82 a COMMIT whose answer is lost is found out", func(t *testing.T) {
		t.Parallel()
		for name, mode := range modes() {
			t.Run(name, func(t *testing.T) {
				through, wall := throughCutter(t)
				b := setup(t, through, &gorm.Config{})
				c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
					err := pay(ctx, tx, d)
					wall.cut(cutCommitReply)
					return err
				}))
				got := c.deliver(t.Context(), message("silent", "x"))
				wall.cut(cutNothing)
				want(t, got, rocketmq.Ack)
				want(t, c.deliver(t.Context(), message("silent", "x")), rocketmq.Ack)
				if r := b.record(t, "silent"); r.Status != model.Success || r.LastError != "" {
					t.Errorf("record = %+v, want SUCCESS with no FAIL over it", r)
				}
				if n := b.effects(t, "silent"); n != 1 {
					t.Errorf("effects = %d, want 1", n)
				}
				if wall.hits() != 1 {
					t.Errorf("%d COMMITs were cut, want 1", wall.hits())
				}
			})
		}
	})
	t.Run("a lock wait of its own claim is in progress, not an error", func(t *testing.T) {
		t.Parallel()
		b := onMariaDB(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		slow := b.consumer(t, Atomic(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
			close(entered)
			<-leave
			return pay(ctx, tx, d)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { want(t, slow.deliver(t.Context(), message("open", "x")), rocketmq.Ack) })
		<-entered
		other := b.consumer(t, Atomic(pay))
		start := time.Now()
		want(t, other.deliver(t.Context(), message("open", "x")), rocketmq.Retry)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("waited %v, want about ClaimWait, not the server's 50s", took)
		}
		close(leave)
		wg.Wait()
		want(t, other.deliver(t.Context(), message("open", "x")), rocketmq.Ack)
		if n := b.effects(t, "open"); n != 1 {
			t.Errorf("effects = %d, want 1", n)
		}
	})
}

// swallowDeadlock makes the server choose the handler's transaction as the
// victim of a real deadlock, whose error the handler drops.
func swallowDeadlock(t *testing.T, b *bundle, mode func(Func) Work) {
	t.Helper()
	ctx := t.Context()
	for i := range 60 { // weight: InnoDB rolls back the lighter one
		b.db.Create(&account{ID: int64(100 + i), Name: "weight"})
	}
	b.db.Create(&account{ID: 2, Name: "other"})
	deadlocked := false
	c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
		if d.Attempt != 1 {
			t.Errorf("attempt = %d, want 1: a deadlock costs none", d.Attempt)
		}
		if deadlocked {
			return pay(ctx, tx, d)
		}
		if err := pay(ctx, tx, d); err != nil { // locks account 1
			return err
		}
		heavy := b.db.Begin()
		heavy.Exec("UPDATE accounts SET balance = balance + 1 WHERE id >= 100")
		heavy.Exec("UPDATE accounts SET balance = balance + 1 WHERE id = 2")
		waits := make(chan error, 1)
		go func() { waits <- heavy.Exec("UPDATE accounts SET name = 'x' WHERE id = 1").Error }()
		waitForUpdate(t, b.db)
		err := tx.Exec("UPDATE accounts SET balance = balance + 1 WHERE id = 2").Error
		deadlocked = b.store.Deadlock(err)
		if err := <-waits; err != nil {
			t.Errorf("the heavy transaction was the victim: %v", err)
		}
		heavy.Rollback()
		tx.Create(&entry{EventID: d.EventID, Note: "after the deadlock"}) // would commit by itself
		return nil
	}), func(c *Config) { c.MaxAttempts = 1 })
	want(t, c.deliver(ctx, message("deadlock", "x")), rocketmq.Retry)
	if !deadlocked {
		t.Fatal("no deadlock came about")
	}
	if n := b.effects(t, "deadlock"); n != 0 {
		t.Errorf("effects = %d, want 0", n)
	}
	want(t, c.deliver(ctx, message("deadlock", "x")), rocketmq.Ack)
	if n := b.effects(t, "deadlock"); n != 1 {
		t.Errorf("effects = %d, want 1", n)
	}
}

// waitForUpdate returns when the rival's statement runs. Whichever of the two
// then comes to wait second closes the circle.
func waitForUpdate(t *testing.T, db *gorm.DB) {
	t.Helper()
	for {
		var n int64
		err := db.Raw(`SELECT COUNT(*) FROM information_schema.processlist
			WHERE db = DATABASE() AND state = 'Updating' AND info LIKE 'UPDATE accounts SET name%'`).Scan(&n).Error
		if err != nil {
			t.Error(err)
			return
		}
		if n > 0 {
			return
		}
	}
}

func TestClientFoundRows(t *testing.T) {
	t.Parallel()
	for _, params := range [][]string{{"clientFoundRows=true"}, {"clientFoundRows=false"}, {"loc=Asia%2FShanghai"}} {
		t.Run("B27 five deliveries run once, "+strings.Join(params, ","), func(t *testing.T) {
			t.Parallel()
			b := onMariaDB(t, params...)
			for name, mode := range modes() {
				c := b.consumer(t, mode(pay))
				for range 5 {
					want(t, c.deliver(t.Context(), message(name, "x")), rocketmq.Ack)
				}
				if n := b.effects(t, name); n != 1 {
					t.Errorf("%s: effects = %d, want 1", name, n)
				}
			}
		})
	}
}

func TestOneConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, sqlite.Open(testenv.SQLite(t)), &gorm.Config{})
	pool, err := b.db.DB()
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	for name, mode := range modes() {
		c := b.consumer(t, mode(pay))
		want(t, c.deliver(t.Context(), message(name, "x")), rocketmq.Ack)
	}
	want(t, b.consumer(t, Atomic(pay)).deliver(t.Context(), message("last", "x")), rocketmq.Ack) // none is leaked
}
