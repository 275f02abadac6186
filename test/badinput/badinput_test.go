// Package badinput gives txmq what a tired person gives it, one row for each
// mistake: the error names the field, its value and the way out, comes within a
// stated time, and nothing was sent or written by then.
//
// Each part of txmq has a file of rows; a new one makes a Test function that
// calls run.
package badinput

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// row is one mistake.
type row struct {
	name string
	call func(t *testing.T, w *world) error

	fields []field       // all *txmq.FieldErrors of the error, and no others
	is     []error       // sentinels that the error Is
	says   []string      // what else stands in its text
	within time.Duration // default promptly
}

// field is a part of each text of a *txmq.FieldError.
type field struct {
	name  string // the whole name
	value string // of what is shown; "" for one that is missing
	want  string // the way out
}

// promptly is for what needs no I/O, or one answer.
const promptly = 2 * time.Second

// secret stands wherever something must not be shown: bodies, keys, passwords.
const secret = "s3cret"

// run gives each row to a world of its own kind, one after another, so that
// what was sent and written is the row's doing. prepare comes before all.
func run(t *testing.T, rows []row, prepare ...func(*testing.T, *world)) {
	t.Helper()
	w := newWorld(t)
	for _, f := range prepare {
		f(t, w)
	}
	before := w.sent()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			sent, written := w.sent(), w.written(t)
			began := time.Now()
			err := r.call(t, w)
			took := time.Since(began)
			r.check(t, err)
			if limit := max(r.within, promptly); took > limit {
				t.Errorf("it took %v, want %v at most", took, limit)
			}
			if now := w.sent(); now != sent {
				t.Errorf("%d messages were sent", now-sent)
			}
			if now := w.written(t); !maps.Equal(now, written) {
				t.Errorf("rows are now %v, were %v", now, written)
			}
		})
	}
	if t.Failed() {
		return // the counts would only repeat it
	}
	w.counts(t, before)
}

func (r row) check(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("error = nil")
	}
	text := err.Error()
	got := map[string]*txmq.FieldError{}
	for _, f := range fieldErrors(err) {
		got[f.Field] = f
	}
	for _, want := range r.fields {
		f := got[want.name]
		delete(got, want.name)
		switch {
		case f == nil:
			t.Errorf("error = %v\nwant it to name %s", text, want.name)
		case (f.Value == nil) != (want.value == "") || !strings.Contains(shown(f.Value), want.value):
			t.Errorf("%s has the value %s, want %s in it", f.Field, shown(f.Value), want.value)
		case f.Want == "" || !strings.Contains(f.Want, want.want):
			t.Errorf("%s wants %q, want %q in it", f.Field, f.Want, want.want)
		}
	}
	for name := range got {
		t.Errorf("error = %v\nwant no word of %s", text, name)
	}
	for _, want := range r.is {
		if !errors.Is(err, want) {
			t.Errorf("error = %v, want it to be %v", text, want)
		}
	}
	for _, want := range r.says {
		if !strings.Contains(text, want) {
			t.Errorf("error = %v\nwant %q in it", text, want)
		}
	}
	if strings.Contains(text, secret) || len(text) > 2000 {
		t.Errorf("error of %d bytes shows what it must not: %.2000s", len(text), text)
	}
}

// shown is a value as the text of a *txmq.FieldError has it.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(v)
}

// fieldErrors finds all of them, through joins and wraps.
func fieldErrors(err error) (found []*txmq.FieldError) {
	if f, ok := err.(*txmq.FieldError); ok { //nolint:errorlint // walks the tree itself
		return []*txmq.FieldError{f}
	}
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			found = append(found, fieldErrors(inner)...)
		}
	case interface{ Unwrap() error }:
		found = fieldErrors(e.Unwrap())
	}
	return found
}

// world is a service on a real broker, behind a proxy that counts, and a real
// database.
type world struct {
	dsn    string
	db     *gorm.DB
	store  *model.Store
	proxy  *wireproxy.Proxy
	broker txmq.Broker // through the proxy
	topic  string

	producer *producer.Producer // started
	sender   *producer.Sender   // started
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ns, addr := testenv.NameServer(t), testenv.Broker(t)
	w := &world{dsn: testenv.MySQL(t), topic: "bad-" + strings.ToLower(rand.Text()[:12])}
	must(t, remoting.CreateTopic(t.Context(), addr, w.topic, 1, 6))
	t.Cleanup(func() {
		for at, code := range map[string]int{addr: remoting.DeleteTopicInBroker, ns: remoting.DeleteTopicInNameSrv} {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_, _ = remoting.Call(ctx, at, remoting.Request(code, map[string]string{"topic": w.topic}, nil)) // a tidy broker is a courtesy
			cancel()
		}
	})
	w.db = openGorm(t, w.dsn)
	_, err := model.Migrate(t.Context(), w.db, model.Config{})
	must(t, err)
	must(t, w.db.Exec("CREATE TABLE effect (event VARBINARY(255) NOT NULL)").Error)
	w.store, err = model.Open(t.Context(), w.db, model.Config{})
	must(t, err)

	w.proxy, err = wireproxy.Start(t.Context(), ns)
	must(t, err)
	t.Cleanup(func() {
		w.proxy.Close()
		must(t, w.proxy.Err())
	})
	w.broker = txmq.Broker{NameServers: []string{w.proxy.NameServer()}}
	w.producer, err = producer.New(w.config())
	must(t, err)
	must(t, w.producer.Start(t.Context()))
	t.Cleanup(func() { must(t, w.producer.Close(context.Background())) })
	w.sender, err = producer.NewSender(w.senderConfig())
	must(t, err)
	must(t, w.sender.Start(t.Context()))
	t.Cleanup(func() { must(t, w.sender.Close(context.Background())) })
	return w
}

func openGorm(t *testing.T, dsn string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	closeLater(t, db)
	return db
}

func closeLater(t *testing.T, db *gorm.DB) {
	t.Helper()
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
}

// config is a good one; rows spoil it.
func (w *world) config() producer.Config {
	return producer.Config{
		Store: w.store, Broker: w.broker, Group: "p-" + w.topic, Topics: []string{w.topic}, SendTimeout: 10 * time.Second,
	}
}

func (w *world) senderConfig() producer.SenderConfig {
	return producer.SenderConfig{Broker: w.broker, Group: "s-" + w.topic, SendTimeout: 10 * time.Second}
}

func (w *world) message() txmq.Message {
	return txmq.Message{Topic: w.topic, EventID: "pay:1001", Body: []byte(secret)}
}

// pay is a local function that leaves a row.
func pay(tx *gorm.DB) error { return tx.Exec("INSERT INTO effect (event) VALUES ('pay:1001')").Error }

// sent counts what producers of any kind have put on the wire.
func (w *world) sent() (n int) {
	for _, code := range []int{
		remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage, remoting.ConsumerSendMsgBack, remoting.EndTransaction,
	} {
		n += w.proxy.Count(code)
	}
	return n
}

// written counts the rows of every table.
func (w *world) written(t *testing.T) map[string]int {
	t.Helper()
	var tables []string
	must(t, w.db.Raw("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables).Error)
	counts := map[string]int{}
	for _, name := range tables {
		var n int
		must(t, w.db.Raw("SELECT COUNT(*) FROM "+name).Scan(&n).Error)
		counts[name] = n
	}
	return counts
}

// counts shows that what was not counted would have been: the same connections
// and tables, with good input.
func (w *world) counts(t *testing.T, before int) {
	t.Helper()
	written := w.written(t)
	ends := w.proxy.Count(remoting.EndTransaction)
	_, err := w.producer.SendInTransaction(t.Context(), w.message(), pay)
	must(t, err)
	_, err = w.sender.Send(t.Context(), w.message())
	must(t, err)
	must(t, w.proxy.WaitCount(t.Context(), remoting.EndTransaction, ends+1))
	if now := w.sent(); now != before+3 { // half, end, message
		t.Errorf("%d requests are counted after two good sends, want 3", now-before)
	}
	now := w.written(t)
	if now["effect"] != written["effect"]+1 || now["t_tx_log"] != written["t_tx_log"]+1 {
		t.Errorf("rows are now %v, were %v, want one more of effect and log", now, written)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
