package migrating

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dial gorm.Dialector) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(dial, &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return db
}

// TestRawProducer pays on a real broker and a real database, what is new and
// what was paid before by new code and by old.
func TestRawProducer(t *testing.T) {
	ctx := t.Context()
	broker := txmq.Broker{NameServers: []string{testenv.NameServer(t)}}
	db := open(t, mysql.Open(testenv.MySQL(t)))
	_, err := model.Migrate(ctx, db, model.Config{})
	must(t, err)
	must(t, db.AutoMigrate(&Order{}, &OrderMessage{}))
	must(t, db.Create(&OrderMessage{No: "old"}).Error)
	store, err := model.Open(ctx, db, model.Config{})
	must(t, err)
	p, l, err := NewRawProducer(store, broker)
	must(t, err)
	must(t, p.Start())
	defer func() {
		must(t, l.Close(context.WithoutCancel(ctx)))
		must(t, p.Shutdown())
	}()

	no := rand.Text() // the topic is shared with earlier runs
	for _, tt := range []struct {
		no   string
		want primitive.LocalTransactionState
	}{
		{no, primitive.CommitMessageState},
		{no, primitive.RollbackMessageState},
		{"old", primitive.RollbackMessageState},
	} {
		m := primitive.NewMessage("order-paid", []byte("{}")).WithKeys([]string{tt.no})
		res, err := p.SendMessageInTransaction(ctx, m)
		must(t, err)
		if res.State != tt.want {
			t.Errorf("state of %s = %v, want %v", tt.no, res.State, tt.want)
		}
	}
	var rows []model.LogEntry
	must(t, db.Find(&rows).Error)
	var orders int64
	must(t, db.Model(&Order{}).Count(&orders).Error)
	if len(rows) != 1 || rows[0].EventID != "pay:"+no || orders != 1 {
		t.Errorf("log = %+v and %d orders, want one of pay:%s", rows, orders, no)
	}
	if _, err := p.SendMessageInTransaction(ctx, primitive.NewMessage("order-paid", []byte("{}")).
		WithKeys([]string{strings.Repeat("n", 256)})); !isFieldError(err) {
		t.Errorf("send of an event ID that is too long = %v, want a field error", err)
	}
}

func isFieldError(err error) bool {
	var f *txmq.FieldError
	return errors.As(err, &f)
}

func TestOldCheck(t *testing.T) {
	db := open(t, sqlite.Open(testenv.SQLite(t)))
	check := OldCheck(db)
	m := &primitive.MessageExt{}
	m.WithKeys([]string{"1"})
	if v := check(m); v != txmq.Unknown {
		t.Errorf("without a table = %v, want unknown", v)
	}
	must(t, db.AutoMigrate(&OrderMessage{}))
	if v := check(m); v != txmq.Unknown {
		t.Errorf("without a row = %v, want unknown", v)
	}
	must(t, db.Create(&OrderMessage{No: "1"}).Error)
	if v := check(m); v != txmq.Commit {
		t.Errorf("with a row = %v, want commit", v)
	}
}

func TestPaidEvent(t *testing.T) {
	m := &primitive.MessageExt{}
	if id := PaidEvent(m); id != "" {
		t.Errorf("of nothing = %q, want none", id)
	}
	m.WithKeys([]string{"1"})
	if id := PaidEvent(m); id != "pay:1" {
		t.Errorf("of old code = %q, want pay:1", id)
	}
	m.WithProperty(txmq.PropertyEventID, "pay:2")
	if id := PaidEvent(m); id != "pay:2" {
		t.Errorf("of new code = %q, want pay:2", id)
	}
}

func TestAfterDedup(t *testing.T) {
	db := open(t, sqlite.Open(testenv.SQLite(t)))
	must(t, db.Exec("CREATE TABLE t_rocketmq_dedup (application_name TEXT, topic TEXT, tag TEXT, msg_uniq_key TEXT COLLATE NOCASE, status TEXT, expire_time BIGINT)").Error)
	past, ahead := time.Now().Add(-time.Hour).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
	for _, row := range []struct {
		key, status string
		expires     int64
	}{
		{"done", "CONSUMED", ahead},
		{"forgotten", "CONSUMED", past},
		{"half", "CONSUMING", ahead},
		{"half long ago", "CONSUMING", past},
		{"CASE", "CONSUMED", ahead},
	} {
		must(t, db.Exec("INSERT INTO t_rocketmq_dedup VALUES ('shares', 'order-paid', 'paid', ?, ?, ?)", row.key, row.status, row.expires).Error)
	}
	for _, tt := range []struct {
		name, key, topic string
		want             string // of the error; empty: work ran
	}{
		{"consumed", "done", "order-paid", "skipped: consumed before"},
		{"so long ago that the old code would run it, too", "forgotten", "order-paid", ""},
		{"in the old code's hands when it stopped", "half", "order-paid", "half-done"},
		{"the same, its time over", "half long ago", "order-paid", "half-done"},
		{"not seen before", "new", "order-paid", ""},
		{"of another topic", "done", "order-refunded", ""},
		{"B29 of another case", "case", "order-paid", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran := false
			work := AfterDedup(DedupTable("shares"), func(context.Context, *gorm.DB, *consumer.Delivery) error { ran = true; return nil })
			m := &primitive.MessageExt{MsgId: "not the key"}
			m.WithProperty(primitive.PropertyUniqueClientMessageIdKeyIndex, tt.key)
			err := work(t.Context(), db, &consumer.Delivery{Topic: tt.topic, Tag: "paid", Message: m})
			if ran != (tt.want == "") || ran != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ran %v, %v, want %q", ran, err, tt.want)
			}
		})
	}
	t.Run("a table that can't be read is no leave to run", func(t *testing.T) {
		must(t, db.Exec("DROP TABLE t_rocketmq_dedup").Error)
		work := AfterDedup(DedupTable("shares"), func(context.Context, *gorm.DB, *consumer.Delivery) error { t.Error("ran"); return nil })
		if err := work(t.Context(), db, &consumer.Delivery{Message: &primitive.MessageExt{}}); err == nil {
			t.Error("error = nil, want the database's")
		}
	})
}
