package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

func TestSeveralHandlers(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	var ran []string
	do := func(name string) Work {
		return Atomic(func(context.Context, *gorm.DB, *Delivery) error {
			ran = append(ran, name)
			return nil
		})
	}
	c := b.consumer(t, Work{}, func(c *Config) {
		c.Handlers = []Handler{
			{Topic: "order", Tags: "paid || refunded", Name: "money", Do: do("money")},
			{Topic: "order", Tags: "created", Name: "stock", Do: do("stock")},
			{Topic: "user", Do: do("user")},
			{Topic: "audit", Tags: "*", Do: do("audit")},
		}
	})
	deliver := func(topic, tag, id string) rocketmq.Result {
		m := message(id, "x")
		m.Topic = topic
		m.WithTag(tag)
		return c.deliver(t.Context(), m)
	}

	t.Run("the subscription of a topic is the union of its handlers'", func(t *testing.T) {
		want := []rocketmq.Subscription{{Topic: "audit", Tags: "*"}, {Topic: "order", Tags: "created || paid || refunded"}, {Topic: "user", Tags: "*"}}
		if diff := cmp.Diff(want, c.routes.subscriptions()); diff != "" {
			t.Errorf("subscriptions (-want +got):\n%s", diff)
		}
	})
	t.Run("a delivery goes to the handler that names its tag, under that one's name", func(t *testing.T) {
		for _, d := range [][3]string{
			{"order", "paid", "money"},
			{"order", "created", "stock"},
			{"order", "refunded", "money"},
			{"user", "any", "user"},
			{"user", "", "user"},
			{"audit", "paid", "audit"},
		} {
			ran = nil
			id := strings.Join(d[:2], ":")
			want(t, deliver(d[0], d[1], id), rocketmq.Ack)
			if diff := cmp.Diff([]string{d[2]}, ran); diff != "" {
				t.Errorf("handlers of %v (-want +got):\n%s", d, diff)
			}
		}
		if r, err := b.store.Find(t.Context(), "order:paid", "money"); err != nil || r.Status != model.Success {
			t.Errorf("record = %+v, %v", r, err)
		}
	})
	t.Run("one event ID under two tags is an event of each handler", func(t *testing.T) {
		ran = nil
		want(t, deliver("order", "paid", "7"), rocketmq.Ack)
		want(t, deliver("order", "created", "7"), rocketmq.Ack)
		want(t, deliver("order", "created", "7"), rocketmq.Ack)
		if diff := cmp.Diff([]string{"money", "stock"}, ran); diff != "" {
			t.Errorf("handlers (-want +got):\n%s", diff)
		}
	})
	t.Run("a tag or topic of no handler is left for another version of the group, and told", func(t *testing.T) {
		ran = nil
		for _, d := range [][2]string{{"order", "deleted"}, {"order", ""}, {"other", "paid"}} {
			if got := deliver(d[0], d[1], "lost"); got != (rocketmq.Result{Kind: rocketmq.Retry, Delay: time.Hour}) {
				t.Errorf("delivery of %v = %+v, want a retry after Backoff.Max", d, got)
			}
		}
		if len(ran) != 0 || !strings.Contains(b.log(), "tag=deleted") {
			t.Errorf("handlers = %v, want none; log:\n%s", ran, b.log())
		}
	})
}

func TestBadHandlers(t *testing.T) {
	t.Parallel()
	do := Atomic(pay)
	for name, c := range map[string]struct {
		handlers []Handler
		fields   []string
		says     string
	}{
		"none":                        {nil, []string{"Handlers"}, "at least one"},
		"without topic and work":      {[]Handler{{}}, []string{"Handlers[0].Topic", "Handlers[0].Do"}, "consumer.Atomic(fn)"},
		"a function that is nil":      {[]Handler{{Topic: "a", Do: External(nil)}}, []string{"Handlers[0].Do"}, ""},
		"a retry topic":               {[]Handler{{Topic: "%RETRY%g", Do: do}}, []string{"Handlers[0].Topic"}, "no retry topic"},
		"twice":                       {[]Handler{{Topic: "a", Do: do}, {Topic: "a", Do: do}}, []string{"Handlers[1].Name", "Handlers[1].Tags"}, "Handlers[0] (g:a) wants * too"},
		"twice, one with all":         {[]Handler{{Topic: "a", Name: "x", Tags: "t", Do: do}, {Topic: "a", Do: do}}, []string{"Handlers[1].Tags"}, "Handlers[0] (x) wants t too"},
		"a tag in two":                {[]Handler{{Topic: "a", Name: "x", Tags: "t || u", Do: do}, {Topic: "a", Name: "y", Tags: "v || u", Do: do}}, []string{"Handlers[1].Tags"}, "Handlers[0] (x) wants u too"},
		"tags apart, without names":   {[]Handler{{Topic: "a", Tags: "t", Do: do}, {Topic: "a", Tags: "u", Do: do}}, []string{"Handlers[1].Name"}, "a name of its own, which Handlers[0] has"},
		"one name for two topics":     {[]Handler{{Topic: "a", Name: "x", Do: do}, {Topic: "b", Name: "x", Do: do}}, []string{"Handlers[1].Name"}, "one event ID would run in only one"},
		"a name that is too long":     {[]Handler{{Topic: "a", Name: strings.Repeat("n", 256), Do: do}}, []string{"Handlers[0].Name"}, "255"},
		"SQL92":                       {[]Handler{{Topic: "a", Tags: "price > 5", Do: do}}, []string{"Handlers[0].Tags"}, "SQL92"},
		"an empty part of the tags":   {[]Handler{{Topic: "a", Tags: "t || ", Do: do}}, []string{"Handlers[0].Tags"}, `the part ""`},
		"several mistakes, all named": {[]Handler{{Tags: "||"}, {Topic: "b", Name: strings.Repeat("n", 256)}}, []string{"Handlers[0].Topic", "Handlers[0].Tags", "Handlers[0].Do", "Handlers[1].Name", "Handlers[1].Do"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(Config{
				Store: new(model.Store), Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "g", Handlers: c.handlers,
			})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("New = %v, want %q in it", err, c.says)
			}
			for _, field := range c.fields {
				if !namesField(err, "consumer.Config."+field) {
					t.Errorf("New = %v, want %s named", err, field)
				}
			}
			if err != nil && len(strings.Split(err.Error(), "\n")) != len(c.fields) {
				t.Errorf("New = %v, want %d lines", err, len(c.fields))
			}
		})
	}
}
