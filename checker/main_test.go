package checker

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// databases are what every check on real rows runs on.
var databases = []struct {
	name  string
	sees  bool // an open insert shows itself to a look
	dials func(testing.TB) gorm.Dialector
}{
	{"sqlite", false, func(tb testing.TB) gorm.Dialector {
		return sqlite.Open(testenv.SQLite(tb, "_pragma=busy_timeout(100)"))
	}},
	{"mariadb", true, func(tb testing.TB) gorm.Dialector { return mysql.Open(testenv.MySQL(tb)) }},
}

type bundle struct {
	sees  bool
	db    *gorm.DB
	store *model.Store
	clock *dbclock.Offset
	seen  *recorder
}

// each runs test on each database, a new one each time.
func each(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	t.Parallel()
	for _, d := range databases {
		t.Run("on "+d.name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{sees: d.sees, clock: new(dbclock.Offset), seen: new(recorder)}
			b.db, b.store = open(t, d.dials(t), b.clock)
			test(t, b)
		})
	}
}

func open(tb testing.TB, dial gorm.Dialector, clock *dbclock.Offset) (*gorm.DB, *model.Store) {
	tb.Helper()
	db, err := gorm.Open(dial, &gorm.Config{Logger: logger.Discard})
	must(tb, err)
	pool, err := db.DB()
	must(tb, err)
	tb.Cleanup(func() { _ = pool.Close() })
	_, err = model.Migrate(tb.Context(), db, model.Config{})
	must(tb, err)
	store, err := model.Open(tb.Context(), db, model.Config{Clock: clock})
	must(tb, err)
	return db, store
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// recorder keeps the events of a Checker and a Listener.
type recorder struct {
	mu     sync.Mutex
	events []txmq.Checked
	ends   []txmq.SendEnded
}

func (r *recorder) observe(_ context.Context, e txmq.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case txmq.Checked:
		r.events = append(r.events, e)
	case txmq.SendEnded:
		r.ends = append(r.ends, e)
	}
}

func (r *recorder) ended(tb testing.TB) txmq.SendEnded {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ends) == 0 {
		tb.Fatal("no SendEnded event")
	}
	return r.ends[len(r.ends)-1]
}

func (r *recorder) last(tb testing.TB) txmq.Checked {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		tb.Fatal("no Checked event")
	}
	return r.events[len(r.events)-1]
}

func (b *bundle) checker(tb testing.TB, change ...func(*Config)) *Checker {
	tb.Helper()
	cfg := Config{Store: b.store, Observe: b.seen.observe, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	must(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		must(tb, c.Close(ctx))
	})
	return c
}

func attempt(event string) model.Attempt {
	return model.Attempt{ID: uuid.Must(uuid.NewV7()).String(), Topic: "paid", EventID: event, Group: "orders"}
}

// half is a check-back for a as the broker would send it.
func (b *bundle) half(a model.Attempt, times int, age time.Duration) *primitive.MessageExt {
	now := time.Now().Add(time.Duration(b.clock.Microseconds()) * time.Microsecond)
	born := now.Add(-age).UnixMilli()
	m := &primitive.MessageExt{MsgId: "C0A8000100002A9F0000000000000001", BornTimestamp: born}
	m.Topic = a.Topic
	set := func(k, v string) { m.WithProperty(k, v) }
	set(txmq.PropertyEventID, a.EventID)
	set(txmq.PropertyAttempt, a.ID)
	set(txmq.PropertyDatabaseID, b.store.DatabaseID())
	set(txmq.PropertyBorn, strconv.FormatInt(born, 10))
	set(primitive.PropertyProducerGroup, a.Group)
	set(primitive.PropertyTranscationCheckTimes, strconv.Itoa(times))
	return m
}

// logged begins a local transaction and writes its row.
func (b *bundle) logged(tb testing.TB, a model.Attempt, route string) (*model.Tx, error) {
	tb.Helper()
	tx, err := b.store.Begin(tb.Context())
	must(tb, err)
	tb.Cleanup(tx.Rollback)
	if err := tx.Log(tb.Context(), a, route); err != nil {
		tx.Rollback()
		return nil, err
	}
	return tx, nil
}

func (b *bundle) commit(tb testing.TB, a model.Attempt, route string) {
	tb.Helper()
	tx, err := b.logged(tb, a, route)
	must(tb, err)
	must(tb, tx.Commit(tb.Context()))
}

// row is the attempt's row, or txmq.ErrNotFound.
func (b *bundle) row(tb testing.TB, id string) (model.LogEntry, error) {
	tb.Helper()
	tx, err := b.store.Begin(tb.Context())
	must(tb, err)
	defer tx.Rollback()
	return tx.Look(tb.Context(), id)
}

func (b *bundle) want(tb testing.TB, got txmq.Verdict, verdict txmq.Verdict, reason string) {
	tb.Helper()
	e := b.seen.last(tb)
	if got != verdict || e.Verdict != verdict || e.Reason != reason {
		tb.Errorf("Check = %v (event: %v, %q, %v), want %v, %q", got, e.Verdict, e.Reason, e.Err, verdict, reason)
	}
}

func (b *bundle) wantNoRow(tb testing.TB, a model.Attempt) {
	tb.Helper()
	if e, err := b.row(tb, a.ID); !errors.Is(err, txmq.ErrNotFound) {
		tb.Errorf("row = %+v, %v, want none", e, err)
	}
}
