package jobs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/robfig/cron/v3"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// interval of the jobs under test. Only the database's clock, which the tests
// move, makes it pass: the timers tick much faster.
const interval = time.Minute

// tickEvery is the tests' schedule: far under the least interval of cron.
const tickEvery = 10 * time.Millisecond

// bundle is one empty database and its clock.
type bundle struct {
	clock *dbclock.Offset
	open  func(*testing.T) *gorm.DB // a pool of its own on the same database
}

// each runs a test on SQLite, where time is a bubble's, and on MariaDB. In
// either it waits for events, never for a time.
func each(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dsn := testenv.SQLite(t, "_txlock=immediate")
			test(t, newBundle(t, func() gorm.Dialector { return sqlite.Open(dsn) }))
		})
	})
	t.Run("MariaDB", func(t *testing.T) { maria(t, test) })
}

// maria runs a test on MariaDB only, for what needs two transactions at a time.
func maria(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	dsn := testenv.MySQL(t)
	test(t, newBundle(t, func() gorm.Dialector { return mysql.Open(dsn) }))
}

// bubble runs a test on SQLite only, for what is about durations.
func bubble(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dsn := testenv.SQLite(t, "_txlock=immediate")
		test(t, newBundle(t, func() gorm.Dialector { return sqlite.Open(dsn) }))
	})
}

func newBundle(t *testing.T, dialector func() gorm.Dialector) *bundle {
	t.Helper()
	b := &bundle{clock: new(dbclock.Offset)}
	b.open = func(t *testing.T) *gorm.DB {
		t.Helper()
		return openDB(t, dialector())
	}
	if _, err := model.Migrate(t.Context(), b.open(t), model.Config{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func openDB(t *testing.T, d gorm.Dialector) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(d, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

// store is another replica's view of the database.
func (b *bundle) store(t *testing.T) *model.Store {
	t.Helper()
	return b.storeOn(t, b.open(t))
}

func (b *bundle) storeOn(t *testing.T, db *gorm.DB) *model.Store {
	t.Helper()
	s, err := model.Open(t.Context(), db, model.Config{Clock: b.clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replica is a runner whose timer ticks quickly and counts its ticks.
type replica struct {
	*Runner
	period time.Duration // of its ticks
	ticks  atomic.Int64
	ticked chan struct{}
	runs   chan txmq.JobRun
	stop   context.CancelFunc
	ended  chan error
}

// replica makes a runner of one job. Its JobRun events arrive in runs.
func (b *bundle) replica(t *testing.T, cfg Config, jobs ...job) *replica {
	t.Helper()
	if cfg.Store == nil {
		cfg.Store = b.store(t)
	}
	return b.replicaOf(t, cfg, func(Config) []job { return jobs })
}

// replicaOf makes the jobs from the configuration as it then is.
func (b *bundle) replicaOf(t *testing.T, cfg Config, made func(Config) []job) *replica {
	t.Helper()
	r := &replica{period: tickEvery, ticked: make(chan struct{}, 1), runs: make(chan txmq.JobRun, 1000)}
	also := cfg.Observe
	cfg.Observe = func(ctx context.Context, e txmq.Event) {
		also.Emit(ctx, e)
		if run, ok := e.(txmq.JobRun); ok {
			r.runs <- run
		}
	}
	cfg = cfg.withDefaults()
	r.Runner = newRunner(cfg, made(cfg)...)
	r.schedule = func(time.Duration) cron.Schedule { return (*ticker)(r) }
	return r
}

// start begins Run, which is stopped and waited for at the end of the test.
func (r *replica) start(t *testing.T) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.stop, r.ended = cancel, make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { r.ended <- r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := <-r.ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return r
}

// stopped ends Run and gives what it returned.
func (r *replica) stopped() error {
	r.stop()
	err := <-r.ended
	r.ended <- nil // for the cleanup
	return err
}

// pass waits for n more ticks.
func (r *replica) pass(n int64) {
	for until := r.ticks.Load() + n; r.ticks.Load() < until; {
		<-r.ticked
	}
}

type ticker replica

// Next is called once for each tick.
func (c *ticker) Next(t time.Time) time.Time {
	c.ticks.Add(1)
	select {
	case c.ticked <- struct{}{}:
	default:
	}
	return t.Add(c.period)
}

// counted is a job that keeps how many of it run at a time.
type counted struct {
	now, most, all atomic.Int64
}

func (c *counted) job(run func(context.Context) error) job {
	return job{name: "counted", every: interval, timeout: time.Hour, run: func(ctx context.Context) (Result, error) {
		now := c.now.Add(1)
		defer c.now.Add(-1)
		for most := c.most.Load(); now > most; most = c.most.Load() {
			if c.most.CompareAndSwap(most, now) {
				break
			}
		}
		c.all.Add(1)
		return Result{Done: 1}, run(ctx)
	}}
}

func nothing(context.Context) error { return nil }

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}
