package model

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// deliver is what a consumer does with one delivery in Atomic mode, in short:
// it gives true once the event is decided.
func (b *bundle) deliver(ctx context.Context, a Arrival, work func(*gorm.DB) error) (bool, error) {
	tx, err := b.s.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	c, err := tx.Apply(ctx, a, short)
	switch {
	case b.s.Transient(err):
		return false, nil
	case err != nil:
		return false, err
	case c.Decision == Duplicate:
		return true, nil
	case c.Decision != Run:
		return false, nil
	}
	if err = work(tx.DB()); err == nil {
		if err = tx.Commit(ctx); err == nil {
			return true, nil
		}
	}
	tx.Rollback()
	err = b.s.Fail(ctx, Failure{Arrival: a, Version: c.Version, RetryCnt: c.RetryCnt, Err: err})
	if errors.Is(err, txmq.ErrLeaseLost) || b.s.Transient(err) {
		return false, nil
	}
	return false, err
}

// deliverTracked is the same in Tracked mode.
func (b *bundle) deliverTracked(ctx context.Context, a Arrival, owner string, work func(*gorm.DB) error) (bool, error) {
	c, err := b.s.Claim(ctx, a, owner, minute, short)
	switch {
	case b.s.Transient(err), errors.Is(err, errMoving):
		return false, nil
	case err != nil:
		return false, err
	case c.Decision == Duplicate:
		return true, nil
	case c.Decision != Run:
		return false, nil
	}
	err = func() error {
		tx, err := b.s.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := work(tx.DB()); err != nil {
			return err
		}
		if err := tx.Succeed(ctx, Held{a.EventID, a.Consumer, owner, c.Version}); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}()
	if err == nil {
		return true, nil
	}
	for {
		err = b.s.Fail(ctx, Failure{Arrival: a, Owner: owner, Version: c.Version, RetryCnt: c.RetryCnt, Err: err})
		if !b.s.Transient(err) {
			return false, err
		}
	}
}

// manyWorkers lets eight workers apply four events that fail twice each, and
// counts the money.
func manyWorkers(t *testing.T, b *bundle, deliver func(ctx context.Context, a Arrival, worker int, work func(*gorm.DB) error) (bool, error)) {
	exec(t, b.db, "INSERT INTO account VALUES ('a', 0)")
	const events = 4
	var fails [events]atomic.Int32
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for e := range events {
				for done := false; !done; {
					var err error
					done, err = deliver(t.Context(), arrival(fmt.Sprint("e", e)), worker, func(tx *gorm.DB) error {
						if err := tx.Exec("UPDATE account SET balance = balance + 10").Error; err != nil {
							return err
						}
						if fails[e].Add(1) <= 2 {
							return errNoStock
						}
						return nil
					})
					if err != nil {
						t.Errorf("worker %d: %v", worker, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if n := b.count(t, "SELECT balance FROM account"); n != events*10 {
		t.Errorf("balance = %d, want %d", n, events*10)
	}
	if n := b.count(t, "SELECT COUNT(*) FROM t_msg_consume WHERE status = 'SUCCESS'"); n != events {
		t.Errorf("%d rows of SUCCESS, want %d", n, events)
	}
}

// together runs do on n goroutines that start at once, and joins the errors. On
// SQLite, where all share one lock, one that did not get it tries again.
func (b *bundle) together(n int, do func(i int) error) error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			for errs[i] = do(i); !b.server && b.s.Transient(errs[i]); {
				errs[i] = do(i)
			}
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

var raceChecks = []check{
	{name: "P2 many workers on one key with failing work, Atomic: the money adds up", needs: two, run: func(t *testing.T, b *bundle) {
		manyWorkers(t, b, func(ctx context.Context, a Arrival, _ int, work func(*gorm.DB) error) (bool, error) {
			return b.deliver(ctx, a, work)
		})
	}},
	{name: "P2 many workers on one key with failing work, Tracked: the money adds up", needs: two, run: func(t *testing.T, b *bundle) {
		manyWorkers(t, b, func(ctx context.Context, a Arrival, worker int, work func(*gorm.DB) error) (bool, error) {
			return b.deliverTracked(ctx, a, fmt.Sprint("w", worker), work)
		})
	}},
	{name: "B33 twenty first deliveries of different keys in one gap meet no deadlock", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		b.apply(t, "a")
		b.apply(t, "z")
		want(t, b.together(20, func(i int) error {
			tx, err := b.s.Begin(t.Context())
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.Apply(t.Context(), arrival(fmt.Sprint("k", i)), short); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		}))
		want(t, b.together(20, func(i int) error {
			_, err := b.s.Claim(t.Context(), arrival(fmt.Sprint("m", i)), "w1", minute, short)
			return err
		}))
		want(t, b.together(20, func(i int) error {
			return b.s.Fail(t.Context(), Failure{Arrival: arrival(fmt.Sprint("n", i)), Err: errNoStock})
		}))
	}},
	{name: "B33 a deadlock of a statement that is its own transaction reaches nobody", needs: server, run: func(t *testing.T, b *bundle) {
		insert, victims := b.s.d.insert, 0
		b.s.d.insert = func(ctx context.Context, c conn, q string, args []any) (bool, error) {
			if victims++; victims%2 == 1 {
				return false, &mysql.MySQLError{Number: erDeadlock}
			}
			return insert(ctx, c, q, args)
		}
		if c, _ := b.claim(t, "e", "w1"); c.Decision != Run {
			t.Errorf("Claim = %+v, want Run", c)
		}
		want(t, b.s.Fail(t.Context(), Failure{Arrival: arrival("f"), Err: errNoStock}))
		b.take(t, "w1", false, true)
		if victims != 6 {
			t.Errorf("%d inserts, want each twice", victims)
		}
		tx := b.begin(t)
		if _, err := tx.Apply(t.Context(), arrival("g"), short); !b.s.Deadlock(err) {
			t.Errorf("Apply = %v, want the deadlock told: the caller has to begin again", err)
		}
	}},
	{name: "one of many claims of a FAIL row gets it", needs: two, run: func(t *testing.T, b *bundle) {
		b.in(t, "e", Fail)
		var runs atomic.Int32
		err := b.together(8, func(i int) error {
			c, err := b.s.Claim(t.Context(), arrival("e"), fmt.Sprint("w", i), minute, short)
			if c.Decision == Run {
				runs.Add(1)
			}
			return err
		})
		want(t, err)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d workers got it, want 1", n)
		}
	}},
	{name: "one of many takers of a job gets it", needs: two, run: func(t *testing.T, b *bundle) {
		var runs atomic.Int32
		want(t, b.together(8, func(i int) error {
			_, ok, err := b.s.TakeJob(t.Context(), "sweep", fmt.Sprint("w", i), minute, false)
			if ok {
				runs.Add(1)
			}
			return err
		}))
		if n := runs.Load(); n != 1 {
			t.Errorf("%d got it, want 1", n)
		}
	}},
	{name: "of many sweeps at once each row is swept by one", needs: two, run: func(t *testing.T, b *bundle) {
		for i := range 10 {
			b.claim(t, fmt.Sprint("e", i), "w1")
		}
		b.clock.Add(2 * minute)
		var swept atomic.Int32
		want(t, b.together(4, func(int) error {
			rows, err := b.s.Sweep(t.Context(), 100)
			swept.Add(int32(len(rows)))
			return err
		}))
		if n := swept.Load(); n != 10 {
			t.Errorf("%d rows were swept, want 10", n)
		}
	}},
	{name: "B04 fence and commit of one attempt: one of them wins", needs: two, run: func(t *testing.T, b *bundle) {
		for i := range 10 {
			a := attempt(fmt.Sprint("a", i), fmt.Sprint("e", i))
			var committed, fenced atomic.Bool
			err := b.together(2, func(side int) error {
				tx, err := b.s.Begin(t.Context())
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if side == 0 {
					if err := tx.Log(t.Context(), a, RouteHalf); err != nil {
						return nil // it lost
					}
					err := tx.Commit(t.Context())
					committed.Store(err == nil)
					return err
				}
				fresh, err := tx.Fence(t.Context(), a)
				if err != nil || !fresh {
					return nil // it lost
				}
				err = tx.Commit(t.Context())
				fenced.Store(err == nil)
				return err
			})
			want(t, err)
			if committed.Load() == fenced.Load() {
				t.Errorf("attempt %d: committed %v, fenced %v, want one of them", i, committed.Load(), fenced.Load())
			}
		}
	}},
}
