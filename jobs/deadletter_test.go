package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// dead is a message as it lies in the dead-letter queue of the group "shares".
func dead(event, body string, props ...string) *primitive.MessageExt {
	m := &primitive.MessageExt{MsgId: "MSG-" + event, OffsetMsgId: "DLQ-" + event, QueueOffset: 3}
	m.Topic, m.Body = "%DLQ%shares", []byte(body)
	m.Queue = &primitive.MessageQueue{Topic: m.Topic, BrokerName: "broker-a"}
	m.WithProperty(txmq.PropertyEventID, event)
	m.WithProperty(primitive.PropertyRetryTopic, "order-paid")
	m.WithProperty(primitive.PropertyOriginMessageId, "OFF-"+event)
	for i := 0; i < len(props); i += 2 {
		m.RemoveProperty(props[i])
		m.WithProperty(props[i], props[i+1]) // an empty value sets nothing
	}
	return m
}

// letters takes messages in without a queue, and keeps what it emits.
type letters struct {
	intake
	events []txmq.DeadLetterFound
}

func (b *bundle) letters(t *testing.T, change ...func(*Config)) *letters {
	t.Helper()
	l := &letters{}
	cfg := Config{
		Store: b.store(t), Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}},
		DeadLetters: []DeadLetter{{Group: "shares"}},
		Observe: func(_ context.Context, e txmq.Event) {
			if e, ok := e.(txmq.DeadLetterFound); ok {
				l.events = append(l.events, e)
			}
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	l.intake = intake{Config: cfg, DeadLetter: cfg.DeadLetters[0]}
	return l
}

func (l *letters) put(t *testing.T, m *primitive.MessageExt) {
	t.Helper()
	if r := l.handle(t.Context(), m); r.Kind != rocketmq.Ack {
		t.Errorf("handle = %v, want it acknowledged", r)
	}
}

// all are the rows, but for the position told in one line each.
func (l *letters) all(t *testing.T) (rows []string) {
	t.Helper()
	list, err := l.Store.Records(t.Context(), model.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		rows = append(rows, fmt.Sprintf("%s of %s: %s", r.EventID, r.Consumer, r.Status))
	}
	return rows
}

func (l *letters) want(t *testing.T, rows ...string) {
	t.Helper()
	if got := l.all(t); strings.Join(got, "\n") != strings.Join(rows, "\n") {
		t.Errorf("rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(rows, "\n"))
	}
}

func TestDeadLetters(t *testing.T) {
	t.Run("a message without a record gets a DEAD one, once", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			for range 2 {
				l.put(t, dead("e", "body"))
			}
			l.want(t, "e of shares:order-paid: DEAD")
			r := found(t, l.Store, "e", handler)
			want := model.Position{Topic: "order-paid", BrokerName: "broker-a", QueueOffset: 3, MsgID: "MSG-e", OffsetMsgID: "DLQ-e"}
			if r.Position != want || r.Nameless() || !strings.Contains(r.LastError, "dead-letter queue") || !bytes.Equal(r.PayloadHash, sum256("body")) {
				t.Errorf("row is %+v, want it at %+v", r, want)
			}
			p, err := l.Store.Payload(t.Context(), r)
			if err != nil || string(p.Body) != "body" || p.Properties[txmq.PropertyEventID] != "e" {
				t.Errorf("Payload = %+v, %v", p, err)
			}
			if len(l.events) != 1 || l.events[0] != (txmq.DeadLetterFound{Consumer: handler, EventID: "e", MsgID: "MSG-e"}) {
				t.Errorf("events %+v", l.events)
			}
		})
	})
	t.Run("a message whose record exists changes nothing, whatever the record says", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			for i, dead := range []bool{false, true} {
				failed(t, l.Store, of(fmt.Sprint("e", i), handler), func(f *model.Failure) { f.Dead = dead })
			}
			for i := range 2 {
				event := fmt.Sprint("e", i)
				before := found(t, l.Store, event, handler)
				l.put(t, dead(event, event)) // of's hash is the event's
				if after := found(t, l.Store, event, handler); after.Version != before.Version || after.Status != before.Status || after.LastError != before.LastError {
					t.Errorf("row is %+v, was %+v", after, before)
				}
			}
			l.want(t, "e0 of shares:order-paid: FAIL", "e1 of shares:order-paid: DEAD")
			if l.events != nil {
				t.Errorf("events %+v", l.events)
			}
		})
	})
	t.Run("the handlers' names and functions decide", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t, func(c *Config) {
				c.DeadLetters[0].Handlers = []consumer.Handler{
					{Topic: "order-paid", Tags: "gift || bonus", Name: "gifts", EventID: consumer.FromKey},
					{Topic: "order-paid", Tags: "paid", Name: "paid"},
					{Topic: "order-made"},
				}
				c.DeadLetters[0].OmitBody = true
			})
			l.put(t, dead("e", "x", primitive.PropertyTags, "bonus", primitive.PropertyKeys, "k7"))
			l.put(t, dead("e", "x", primitive.PropertyTags, "paid"))
			l.put(t, dead("e", "x", primitive.PropertyTags, "bonuses"))
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, "order-made"))
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, "", "DLQ_ORIGIN_TOPIC", "order-gone"))
			l.want(t, "k7 of gifts: DEAD", "e of paid: DEAD", "e of shares:order-paid: DEAD", "e of shares:order-made: DEAD", "e of shares:order-gone: DEAD")
			if _, err := l.Store.Payload(t.Context(), found(t, l.Store, "e", "paid")); !errors.Is(err, txmq.ErrNotFound) {
				t.Errorf("Payload = %v, want none kept", err)
			}
			// The names tell the job the groups, too.
			if g, ok := l.groupOf(found(t, l.Store, "k7", "gifts")); !ok || g != "shares" {
				t.Errorf("group of %q = %q, %v", "gifts", g, ok)
			}
		})
	})
	t.Run("a handler that keeps its records in another database is its runner's", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			dsn := testenv.SQLite(t)
			other := newBundle(t, func() gorm.Dialector { return sqlite.Open(dsn) }).store(t)
			l := b.letters(t, func(c *Config) {
				c.DeadLetters[0].Handlers = []consumer.Handler{{Topic: "order-paid", Store: other}, {Topic: "order-made", Store: b.store(t)}}
			})
			l.put(t, dead("e", "x"))
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, "order-made"))
			l.want(t, "e of shares:order-made: DEAD")
		})
	})
	t.Run("B26 a dead letter without ORIGIN_MESSAGE_ID is the same event", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			l.put(t, dead("e", "body", primitive.PropertyOriginMessageId, ""))
			again := dead("e", "body")
			again.OffsetMsgId = "DLQ-later"
			l.put(t, again)
			l.want(t, "e of shares:order-paid: DEAD")
		})
	})
	t.Run("what can't have a record of its own is buried under the consumer's key", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			for range 2 {
				l.put(t, dead("", "body"))
			}
			l.put(t, dead("e", "body"))
			l.put(t, dead("e", "another"))
			long := strings.Repeat("x", 256)
			m := dead("", "body", txmq.PropertyEventID, long)
			m.MsgId = "MSG-long"
			l.put(t, m)
			l.want(t, "missing_id:MSG-:OFF- of shares:order-paid: DEAD", "e of shares:order-paid: DEAD",
				"payload_mismatch:MSG-e:OFF-e of shares:order-paid: DEAD", "missing_id:MSG-long:OFF- of shares:order-paid: DEAD")
			if r := found(t, l.Store, "missing_id:MSG-:OFF-", handler); !r.Nameless() || r.Position.Topic != "order-paid" {
				t.Errorf("row is %+v", r)
			}
			if n := len(l.events); n != 4 || l.events[0].Err == nil {
				t.Errorf("%d events, %+v", n, l.events)
			}
		})
	})
	t.Run("a message that does not say its topic", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, ""))
			l.put(t, dead("f", "x", primitive.PropertyRetryTopic, "%DLQ%shares"))
			l.want(t, "no_topic:MSG-e:OFF-e of shares:%DLQ%shares: DEAD", "no_topic:MSG-f:OFF-f of shares:%DLQ%shares: DEAD")
			l.DeadLetter.Handlers = []consumer.Handler{{Topic: "only", Name: "only", EventID: consumer.FromKey}}
			l.put(t, dead("g", "x", primitive.PropertyRetryTopic, "", primitive.PropertyKeys, "k"))
			if r := found(t, l.Store, "k", "only"); r.Position.Topic != "only" {
				t.Errorf("row is %+v", r)
			}
		})
	})
	t.Run("with the database away nothing is acknowledged", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			db := b.open(t)
			l := b.letters(t, func(c *Config) { c.Store = b.storeOn(t, db) })
			closePool(t, db)
			for _, m := range []*primitive.MessageExt{dead("e", "x"), dead("", "x")} {
				if r := l.handle(t.Context(), m); r.Kind != rocketmq.Retry {
					t.Errorf("handle = %v, want it back later", r)
				}
			}
		})
	})
	t.Run("readers are named for database and group, however long", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			seen := map[string]bool{}
			for _, group := range []string{"shares", "other", strings.Repeat("g", 119) + "1", strings.Repeat("g", 119) + "2"} {
				l := b.letters(t, func(c *Config) { c.DeadLetters[0].Group = group })
				name := l.readers()
				if seen[name] || !strings.HasPrefix(name, "TXMQ_DLQ_") || rocketmq.CheckGroup(name, "group") != nil {
					t.Errorf("readers of %q are %q", group, name)
				}
				seen[name] = true
			}
		})
	})
}

func sum256(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return sum[:]
}

func TestConfigOfWays(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		_, err := New(Config{
			Store:        b.store(t),
			Broker:       txmq.Broker{AccessKey: "k"},
			Compensate:   CompensateConfig{Every: time.Millisecond, Stale: -1, Longest: -2, Deadline: time.Hour, MaxAttempts: -1, Batch: -1, Max: -2, Timeout: time.Minute},
			Compensators: map[string]Compensator{"c": nil, "": pay},
			Groups:       map[string]string{"c": "no group"},
			DeadLetters: []DeadLetter{{}, {Group: "g"}, {Group: "g", Handlers: []consumer.Handler{
				{}, {Topic: "t"}, {Topic: "t"}, {Topic: "u", Name: strings.Repeat("n", 256)}, {Topic: "v", Tags: "a || *"},
			}}},
		})
		if err == nil {
			t.Fatal("New = nil")
		}
		for _, field := range []string{
			"Broker.NameServers", "Compensate.Every", "Compensate.Stale", "Compensate.Longest", "Compensate.Deadline",
			"Compensate.MaxAttempts", "Compensate.Batch", "Compensate.Max", `Compensators["c"]`, "Compensators key", `Groups["c"]`,
			"DeadLetters[0].Group", "DeadLetters[2].Group", "DeadLetters[2].Handlers[0].Topic", "DeadLetters[2].Handlers[2].Name",
			"DeadLetters[2].Handlers[3].Name", "DeadLetters[2].Handlers[4].Tags",
		} {
			if !strings.Contains(err.Error(), "jobs.Config."+field+" ") {
				t.Errorf("New = %v\nand does not name %s", err, field)
			}
		}
		_, err = New(Config{Store: b.store(t), DeadLetters: []DeadLetter{{Group: "g"}}})
		if err == nil || !strings.Contains(err.Error(), "jobs.Config.Broker is missing") {
			t.Errorf("New without a broker for its dead letters = %v", err)
		}
		r, err := New(Config{Store: b.store(t), Compensators: map[string]Compensator{"c": pay}})
		if err != nil || strings.Join(r.Names(), " ") != "sweep compensate" {
			t.Errorf("New = %v, %v", r, err)
		}
	})
}
