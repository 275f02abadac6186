package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
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

// bundle is a consumer without a broker: deliveries are put in by hand.
type bundle struct {
	db    *gorm.DB
	store *model.Store
	clock *dbclock.Offset

	mu     sync.Mutex
	events []txmq.Event
	logs   strings.Builder
}

// account is what the handlers change. It has no unique key, so that a double
// effect shows.
type account struct {
	ID      int64 `gorm:"primaryKey"`
	Name    string
	Balance int64
}

type entry struct {
	ID      int64 `gorm:"primaryKey"`
	EventID string
	Note    string
}

// onEach runs a check on SQLite and on MariaDB.
func onEach(t *testing.T, check func(t *testing.T, b *bundle)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); check(t, onSQLite(t)) })
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); check(t, onMariaDB(t)) })
}

func onSQLite(t *testing.T) *bundle {
	t.Helper()
	return setup(t, sqlite.Open(testenv.SQLite(t)), &gorm.Config{})
}

func onMariaDB(t *testing.T, params ...string) *bundle {
	t.Helper()
	return setup(t, mysql.Open(testenv.MySQL(t, params...)), &gorm.Config{})
}

func setup(t *testing.T, dialector gorm.Dialector, cfg *gorm.Config) *bundle {
	t.Helper()
	cfg.Logger = logger.Discard
	db, err := gorm.Open(dialector, cfg)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(32)
	b := &bundle{db: db, clock: &dbclock.Offset{}}
	ctx := t.Context()
	if _, err := model.Migrate(ctx, db, model.Config{}); err != nil {
		t.Fatal(err)
	}
	b.store, err = model.Open(ctx, db, model.Config{Clock: b.clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.AutoMigrate(&account{}, &entry{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Create(&account{ID: 1, Name: "shared"}).Error; err != nil {
		t.Fatal(err)
	}
	return b
}

// consumer makes one with one handler; change alters its configuration.
func (b *bundle) consumer(t *testing.T, do Work, change ...func(*Config)) *Consumer {
	t.Helper()
	cfg := Config{
		Store: b.store, Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "shares",
		Handlers: []Handler{{Topic: "order-paid", Do: do}},
		Backoff:  Backoff{Jitter: -1},
		Observe:  b.observe, Logger: slog.New(slog.NewTextHandler(lockedWriter{b}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.crew.Close)     // as Run does
	for _, d := range c.bases { // without a row in t_run, so that no consumer is careful because of another
		if d.claims {
			if err := d.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = d.beats.run(ctx) })
		t.Cleanup(func() {
			cancel()
			wg.Wait()
			_ = d.beats.close()
		})
	}
	return c
}

type lockedWriter struct{ b *bundle }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.logs.Write(p)
}

func (b *bundle) observe(_ context.Context, e txmq.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bundle) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

func seen[E txmq.Event](b *bundle) (found []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

var offsets struct {
	sync.Mutex
	next int64
}

// message of an event, at a position of its own.
func message(eventID, body string) *primitive.MessageExt {
	offsets.Lock()
	offsets.next++
	at := offsets.next
	offsets.Unlock()
	m := &primitive.MessageExt{MsgId: fmt.Sprintf("MSG%d", at), OffsetMsgId: fmt.Sprintf("OFF%d", at), QueueOffset: at}
	m.Topic = "order-paid"
	m.Body = []byte(body)
	m.Queue = &primitive.MessageQueue{Topic: "order-paid", BrokerName: "broker-a", QueueId: 1}
	m.WithProperty(txmq.PropertyEventID, eventID)
	return m
}

// pay adds 10 to the shared account and writes an entry.
func pay(_ context.Context, tx *gorm.DB, d *Delivery) error {
	if err := tx.Create(&entry{EventID: d.EventID}).Error; err != nil {
		return err
	}
	return tx.Model(&account{}).Where("id = 1").Update("balance", gorm.Expr("balance + 10")).Error
}

// effects counts the entries of an event ("" for all), and checks that the
// balance agrees with all of them.
func (b *bundle) effects(t *testing.T, eventID string) int {
	t.Helper()
	var entries []entry
	if err := b.db.Find(&entries).Error; err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries { // compared here: the column's collation would merge some
		if e.EventID == eventID || eventID == "" {
			n++
		}
	}
	var a account
	if err := b.db.First(&a, 1).Error; err != nil {
		t.Fatal(err)
	}
	if a.Balance != int64(10*len(entries)) {
		t.Errorf("balance = %d, want 10 for each of %d entries", a.Balance, len(entries))
	}
	return n
}

func (b *bundle) record(t *testing.T, eventID string) model.ConsumeRecord {
	t.Helper()
	r, err := b.store.Find(t.Context(), eventID, "shares:order-paid")
	if err != nil && !errors.Is(err, txmq.ErrNotFound) {
		t.Fatal(err)
	}
	return r
}

// want checks one answer to the broker.
func want(t *testing.T, got rocketmq.Result, kind rocketmq.ResultKind) {
	t.Helper()
	if got.Kind != kind {
		t.Errorf("result = %v, want %v", got, rocketmq.Result{Kind: kind})
	}
}

func modes() map[string]func(Func) Work {
	return map[string]func(Func) Work{"atomic": Atomic, "tracked": Tracked}
}

// onEachMode runs a check on both databases in both modes.
func onEachMode(t *testing.T, check func(t *testing.T, b *bundle, mode func(Func) Work)) {
	t.Helper()
	onEach(t, func(t *testing.T, b *bundle) {
		for name, mode := range modes() {
			t.Run(name, func(t *testing.T) {
				check(t, b, mode)
				if t.Failed() {
					t.Log(b.log())
				}
				b.db.Where("1 = 1").Delete(&entry{})
				b.db.Model(&account{}).Where("id = 1").Update("balance", 0)
				b.db.Exec("DELETE FROM " + b.store.Table("msg_consume"))
				b.mu.Lock()
				b.events = nil
				b.mu.Unlock()
			})
		}
	})
}

// untilAck delivers an event again and again, as a broker without delays.
func untilAck(ctx context.Context, c *Consumer, eventID string) {
	for ctx.Err() == nil {
		if c.deliver(ctx, message(eventID, "x")).Kind == rocketmq.Ack {
			return
		}
	}
}

// arrived is a delivery that nothing was done with.
func (c *Consumer) arrived(m *primitive.MessageExt) *run {
	h, _ := c.routes.of(m)
	return c.newRun(h, m)
}
