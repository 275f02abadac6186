package e2e

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// world is what one test has to itself: a database, a topic with one queue,
// names of groups.
type world struct {
	ctx     context.Context
	dsn     string
	sql     *sql.DB
	db      *gorm.DB
	store   *model.Store
	ns      string
	at      string        // the broker's address
	keys    remoting.Keys // where the broker has ACL on
	topic   string
	senders string // producer group
	group   string // consumer group
	handler string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testenv.NameServer(t), testenv.Broker(t))
}

func newWorldOn(t *testing.T, nameServer, broker string) *world {
	t.Helper()
	return newWorldBehind(t, remoting.Keys{}, nameServer, broker)
}

// newWorldBehind is for a broker with ACL on; the keys may make topics.
func newWorldBehind(t *testing.T, keys remoting.Keys, nameServer, broker string) *world {
	t.Helper()
	w := newBareWorld(t, keys, nameServer, broker, 1)
	w.open(t)
	return w
}

// newBareWorld is one whose database is without txmq's tables.
func newBareWorld(t *testing.T, keys remoting.Keys, nameServer, broker string, queues int) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	name := "e2e-" + strings.ToLower(rand.Text()[:12])
	w := &world{
		ctx: ctx, ns: nameServer, at: broker, keys: keys, topic: name, senders: "p-" + name, group: "c-" + name, handler: "shares",
	}
	w.makeTopic(t, broker, queues)
	w.dsn = testenv.MySQL(t)
	w.makeTables(t)
	return w
}

// open migrates, and opens the store.
func (w *world) open(t *testing.T) {
	t.Helper()
	_, err := model.Migrate(w.ctx, w.db, model.Config{})
	must(t, err)
	w.store, err = model.Open(w.ctx, w.db, model.Config{})
	must(t, err)
}

// makeTables makes those of the business.
func (w *world) makeTables(t *testing.T) {
	t.Helper()
	w.db = openGorm(t, w.dsn)
	pool, err := w.db.DB()
	must(t, err)
	w.sql = pool
	for _, statement := range []string{
		"CREATE TABLE e2e_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, event VARBINARY(255) NOT NULL)",
		"CREATE TABLE e2e_share (id BIGINT AUTO_INCREMENT PRIMARY KEY, event VARBINARY(255) NOT NULL, handler VARBINARY(255) NOT NULL)",
		"CREATE TABLE e2e_balance (amount BIGINT NOT NULL)",
		"CREATE TABLE e2e_outside (id BIGINT AUTO_INCREMENT PRIMARY KEY, event VARBINARY(255) NOT NULL, version BIGINT NOT NULL)",
		"INSERT INTO e2e_balance VALUES (0)",
	} {
		_, err := w.sql.ExecContext(w.ctx, statement)
		must(t, err)
	}
}

func openGorm(t *testing.T, dsn string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	pool.SetMaxOpenConns(24)
	pool.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

func (w *world) makeTopic(t *testing.T, broker string, queues int) {
	t.Helper()
	must(t, w.keys.CreateTopic(w.ctx, broker, w.topic, queues, 6))
	t.Cleanup(func() {
		for _, topic := range []string{w.topic, "%RETRY%" + w.group, "%DLQ%" + w.group, "%RETRY%o-" + w.topic} {
			for addr, code := range map[string]int{broker: remoting.DeleteTopicInBroker, w.ns: remoting.DeleteTopicInNameSrv} {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, _ = w.keys.Call(ctx, addr, remoting.Request(code, map[string]string{"topic": topic}, nil)) // a tidy broker is a courtesy
				cancel()
			}
		}
	})
	w.until(t, "the name server knows the topic", func() (bool, string) {
		brokers, err := w.keys.Brokers(w.ctx, w.ns, w.topic)
		return len(brokers) > 0, fmt.Sprint(err)
	})
}

func (w *world) broker() txmq.Broker {
	return txmq.Broker{NameServers: []string{w.ns}, AccessKey: w.keys.AccessKey, SecretKey: w.keys.SecretKey}
}

// until polls, for what only the database or the broker can tell.
func (w *world) until(t *testing.T, what string, done func() (ok bool, seen string)) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := done()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			t.Fatalf("never seen: %s; last seen: %s", what, seen)
		}
	}
}

// ---- what the tests run in their own process -------------------------------

// producer starts one of the world's producer group; its events go to seen.
func (w *world) producer(t *testing.T, seen *events, change ...func(*producer.Config)) *producer.Producer {
	t.Helper()
	cfg := producer.Config{
		Store: w.store, Broker: w.broker(), Group: w.senders, Topics: []string{w.topic},
		FenceAfter: time.Second, CheckInterval: time.Second, SendTimeout: 10 * time.Second,
		Observe: seen.observe,
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := producer.New(cfg)
	must(t, err)
	must(t, p.Start(w.ctx))
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	return p
}

func through(p *wireproxy.Proxy) func(*producer.Config) {
	return func(c *producer.Config) { c.Broker.NameServers = []string{p.NameServer()} }
}

func (w *world) proxy(t *testing.T) *wireproxy.Proxy {
	t.Helper()
	p, err := wireproxy.Start(w.ctx, w.ns)
	must(t, err)
	t.Cleanup(func() {
		p.Close()
		if err := p.Err(); err != nil {
			t.Errorf("proxy: %v", err)
		}
	})
	return p
}

// order is the usual local function.
func (w *world) order(event string) func(*gorm.DB) error {
	return func(tx *gorm.DB) error { return tx.Exec("INSERT INTO e2e_order (event) VALUES (?)", event).Error }
}

func (w *world) message(event string) txmq.Message {
	return txmq.Message{Topic: w.topic, EventID: event, Body: []byte("{}")}
}

func (w *world) send(t *testing.T, p *producer.Producer, event string) {
	t.Helper()
	_, err := p.SendInTransaction(w.ctx, w.message(event), w.order(event))
	must(t, err)
}

// share is the usual handler.
func (w *world) share(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	if err := tx.Exec("INSERT INTO e2e_share (event, handler) VALUES (?, ?)", d.EventID, w.handler).Error; err != nil {
		return err
	}
	return tx.Exec("UPDATE e2e_balance SET amount = amount + 10").Error
}

// config is the configuration of the world's consumer group.
func (w *world) config(seen *events, change ...func(*consumer.Config)) consumer.Config {
	cfg := consumer.Config{
		Store: w.store, Broker: w.broker(), Group: w.group,
		Handlers: []consumer.Handler{{Topic: w.topic, Name: w.handler, Do: consumer.Atomic(w.share)}},
		Workers:  4, Observe: seen.observe,
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// consumer runs one of the world's consumer group until the test ends.
func (w *world) consumer(t *testing.T, seen *events, change ...func(*consumer.Config)) (stop func()) {
	t.Helper()
	c, err := consumer.New(w.config(seen, change...))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
		if err := c.Run(w.ctx); !errors.Is(err, txmq.ErrClosed) {
			t.Errorf("a second Run = %v, want ErrClosed", err)
		}
	})
	t.Cleanup(stop)
	must(t, c.Ready(w.ctx))
	return stop
}

// observer is a consumer group without txmq: what it gets is what is visible.
type observer struct {
	mu   sync.Mutex
	seen map[string]int // deliveries by event ID
}

func (w *world) observer(t *testing.T) *observer {
	t.Helper()
	o := &observer{seen: map[string]int{}}
	c, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
		Broker: w.broker(), Group: "o-" + w.topic,
		Subscriptions: []rocketmq.Subscription{{Topic: w.topic}},
		Handle: func(_ context.Context, m *primitive.MessageExt) rocketmq.Result {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.seen[m.GetProperty(txmq.PropertyEventID)]++
			return rocketmq.Result{Kind: rocketmq.Ack}
		},
	})
	must(t, err)
	must(t, c.Start(w.ctx))
	t.Cleanup(func() { must(t, c.Close(context.Background())) })
	return o
}

func (o *observer) count(event string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[event]
}

// visible waits until the event was delivered so often, or more.
func (w *world) visible(t *testing.T, o *observer, event string, times int) {
	t.Helper()
	w.until(t, fmt.Sprintf("%s delivered %d times", event, times), func() (bool, string) {
		return o.count(event) >= times, fmt.Sprint(o.count(event))
	})
}

// invisible sends one more event, waits for it, and then says that the others
// did not come before it. The topic has one queue.
func (w *world) invisible(t *testing.T, p *producer.Producer, o *observer, events ...string) (marker string) {
	t.Helper()
	marker = "marker-" + rand.Text()[:6]
	w.send(t, p, marker)
	w.visible(t, o, marker, 1)
	for _, e := range events {
		if n := o.count(e); n != 0 {
			t.Errorf("%s was delivered %d times, want never: its transaction did not commit", e, n)
		}
	}
	return marker
}

// events keeps what components in this process emit.
type events struct {
	mu   sync.Mutex
	list []txmq.Event
}

func (s *events) observe(_ context.Context, e txmq.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, e)
}

// of gives the events of one type.
func of[E txmq.Event](s *events) (found []E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// one waits for the first event of a type that is as told.
func one[E txmq.Event](t *testing.T, w *world, s *events, what string, is func(E) bool) (found E) {
	t.Helper()
	w.until(t, what, func() (bool, string) {
		all := of[E](s)
		for _, e := range all {
			if is(e) {
				found = e
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", all)
	})
	return found
}

// ---- children --------------------------------------------------------------

// setup is a child that produces and consumes; change it as needed.
func (w *world) setup(change ...func(*protocol.Setup)) protocol.Setup {
	s := protocol.Setup{
		DSN: w.dsn, NameServer: w.ns, Topic: w.topic, ProducerGroup: w.senders, FenceAfter: time.Second,
		ConsumerGroup: w.group, Handler: w.handler, Lease: 10 * time.Second, Deadline: 9 * time.Second,
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func producing(s *protocol.Setup) { s.ConsumerGroup = "" }
func consuming(s *protocol.Setup) { s.ProducerGroup = "" }
func tracked(s *protocol.Setup)   { s.Tracked = true }
func external(s *protocol.Setup)  { s.External = true }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error = %v, want it to be %v", err, want)
	}
}
