package producer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// effect is what a local transaction does in these tests.
type effect struct {
	ID    int64 `gorm:"primaryKey"`
	Event string
	Body  string
}

var databases = []struct {
	name  string
	dials func(testing.TB) gorm.Dialector
}{
	{"sqlite", onSQLite},
	{"mariadb", func(tb testing.TB) gorm.Dialector { return mysql.Open(testenv.MySQL(tb)) }},
}

func onSQLite(tb testing.TB) gorm.Dialector {
	return sqlite.Open(testenv.SQLite(tb, "_pragma=busy_timeout(50)", "_pragma=synchronous(0)"))
}

// reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// bundle is a service with a producer, its database, and a broker that is a
// simulation.
type bundle struct {
	db     *gorm.DB
	store  *model.Store
	clock  *dbclock.Offset
	broker *broker
	events *recorder
	p      *Producer
}

// each runs test on each database, a new one each time.
func each(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	t.Parallel()
	for _, d := range databases {
		t.Run("on "+d.name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, d.dials(t)))
		})
	}
}

func setup(tb testing.TB, dial gorm.Dialector) *bundle {
	tb.Helper()
	b := &bundle{clock: new(dbclock.Offset), events: new(recorder)}
	b.db, b.store = open(tb, dial, b.clock)
	b.p, b.broker = b.producer(tb)
	return b
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
	must(tb, db.AutoMigrate(&effect{}))
	store, err := model.Open(tb.Context(), db, model.Config{Clock: clock})
	must(tb, err)
	return db, store
}

// producer makes one more process of the same service.
func (b *bundle) producer(tb testing.TB, change ...func(*Config)) (*Producer, *broker) {
	tb.Helper()
	var sim *broker
	cfg := Config{
		Store: b.store, Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "orders",
		Topics: []string{"paid"}, Observe: b.events.observe,
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := newProducer(cfg, func(c rocketmq.TxConfig) (halves, error) {
		sim = newBroker(c, func() time.Time { return b.now() })
		return sim, nil
	})
	must(tb, err)
	p.now = b.now
	must(tb, p.Start(tb.Context()))
	tb.Cleanup(func() { must(tb, p.Close(context.Background())) })
	return p, sim
}

// now is the one clock of the simulated world, as the database has it too.
func (b *bundle) now() time.Time {
	return time.Now().Add(time.Duration(b.clock.Microseconds()) * time.Microsecond)
}

func message(event, body string) txmq.Message {
	return txmq.Message{Topic: "paid", EventID: event, Body: []byte(body)}
}

// apply is the usual local function.
func apply(m txmq.Message) func(*gorm.DB) error {
	return func(tx *gorm.DB) error { return tx.Create(&effect{Event: m.EventID, Body: string(m.Body)}).Error }
}

func (b *bundle) send(tb reporter, m txmq.Message) (Receipt, error) {
	tb.Helper()
	return b.p.SendInTransaction(tb.Context(), m, apply(m))
}

// effects are the bodies whose local transaction committed.
func (b *bundle) effects(tb reporter, event string) []string {
	tb.Helper()
	var rows []effect
	must(tb, b.db.Where("event = ?", event).Order("id").Find(&rows).Error)
	bodies := []string{}
	for _, r := range rows {
		bodies = append(bodies, r.Body)
	}
	return bodies
}

// logged counts the rows that say COMMITTED.
func (b *bundle) logged(tb reporter, event string) int64 {
	tb.Helper()
	var n int64
	must(tb, b.db.Model(&model.LogEntry{}).Where("event_id = ? AND state = ?", event, model.Committed).Count(&n).Error)
	return n
}

// want compares what is in the database and what consumers see of an event.
func (b *bundle) want(tb reporter, event string, committed, visible []string) {
	tb.Helper()
	if got := b.effects(tb, event); !slices.Equal(got, committed) {
		tb.Errorf("effects of %s = %v, want %v", event, got, committed)
	}
	if got := b.logged(tb, event); got != int64(len(committed)) {
		tb.Errorf("log rows of %s = %d, want %d", event, got, len(committed))
	}
	if got := b.broker.visible(event); !slices.Equal(got, visible) {
		tb.Errorf("visible of %s = %v, want %v", event, got, visible)
	}
}

func wantReceipt(tb testing.TB, r Receipt, v txmq.Verdict, ended bool) {
	tb.Helper()
	if r.Verdict != v || r.Ended != ended || r.EventID == "" || r.Attempt == "" {
		tb.Errorf("receipt = %+v, want %v, ended %v", r, v, ended)
	}
}

func wantError(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("error = %v, want it to be %v", err, want)
	}
	var op *txmq.OpError
	if err != nil && (!errors.As(err, &op) || op.Op != "send") {
		tb.Errorf("error = %#v, want a *txmq.OpError of send", err)
	}
}

func must(tb reporter, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

type recorder struct {
	mu     sync.Mutex
	events []txmq.Event
	tell   chan txmq.Event // when set, gets every event
}

func (r *recorder) observe(_ context.Context, e txmq.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	tell := r.tell
	r.mu.Unlock()
	if tell != nil {
		tell <- e
	}
}

// of gives the events of one event ID, in order.
func (r *recorder) of(event string) []txmq.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []txmq.Event
	for _, e := range r.events {
		if eventID(e) == event {
			out = append(out, e)
		}
	}
	return out
}

func eventID(e txmq.Event) string {
	switch e := e.(type) {
	case txmq.HalfSent:
		return e.EventID
	case txmq.SendEnded:
		return e.EventID
	case txmq.EndTransactionLost:
		return e.EventID
	case txmq.Checked:
		return e.EventID
	default:
		return ""
	}
}
