package badinput

import (
	"context"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
)

// consumerConfig is a good one; rows spoil it.
func (w *world) consumerConfig() consumer.Config {
	return consumer.Config{
		Store: w.store, Broker: w.broker, Group: "c-" + w.topic,
		Handlers: []consumer.Handler{{Topic: w.topic, Do: work()}},
	}
}

func work() consumer.Work {
	return consumer.Atomic(func(_ context.Context, tx *gorm.DB, _ *consumer.Delivery) error { return pay(tx) })
}

// badConsumer is a row of consumer.New; the fields' names are consumer.Config's.
func badConsumer(name string, spoil func(*consumer.Config), fields ...field) row {
	for i := range fields {
		fields[i].name = "consumer.Config." + fields[i].name
	}
	return row{name: name, fields: fields, call: func(_ *testing.T, w *world) error {
		c := w.consumerConfig()
		spoil(&c)
		_, err := consumer.New(c)
		return err
	}}
}

func TestConsumerConfig(t *testing.T) {
	t.Parallel()
	run(t, []row{
		badConsumer("nothing", func(c *consumer.Config) { *c = consumer.Config{} },
			field{"Store", "", "model.Open"}, field{"Broker.NameServers", "", "ip:port"}, field{"Group", "", "1 to 120 letters"},
			field{"Handlers", "", "at least one"}),
		badConsumer("durations below zero", func(c *consumer.Config) {
			c.Deadline, c.Lease, c.ConsumeTimeout, c.ClaimWait, c.Drain = -2*time.Second, -time.Second, -time.Minute, -3, -4
			c.Backoff.Min = -time.Second
		},
			field{"Deadline", "-2s", "more than 0"}, field{"Lease", "-1s", "less than ConsumeTimeout"}, field{"ConsumeTimeout", "-1m0s", "1m or more"},
			field{"ClaimWait", "-3ns", "more than 0"}, field{"Drain", "-4ns", "more than 0"}, field{"Backoff.Min", "-1s", "up to 2h"}),
		badConsumer("a handler that may outlive its lease", func(c *consumer.Config) { c.Deadline, c.Lease = time.Minute, time.Minute },
			field{"Deadline", "1m0s", "less than Lease (1m0s)"}),
		badConsumer("a lease that outlives ConsumeTimeout", func(c *consumer.Config) { c.Lease, c.ConsumeTimeout = 5*time.Minute, 2*time.Minute },
			field{"Lease", "5m0s", "less than ConsumeTimeout (2m0s)"}),
		badConsumer("seconds of ConsumeTimeout", func(c *consumer.Config) { c.ConsumeTimeout = 90 * time.Second },
			field{"ConsumeTimeout", "1m30s", "whole minutes"}),
		badConsumer("a wait as long as the deadline", func(c *consumer.Config) { c.Wait.Max = time.Minute }, field{"Wait.Max", "1m0s", "less than Deadline (30s)"}),
		badConsumer("a poll longer than the wait", func(c *consumer.Config) { c.Wait.Max, c.Wait.Poll = time.Second, 2*time.Second },
			field{"Wait.Poll", "2s", "at most Wait.Max"}),
		badConsumer("a back-off that shrinks", func(c *consumer.Config) {
			c.Backoff = consumer.Backoff{Min: time.Minute, Max: time.Second, Factor: 0.5}
		},
			field{"Backoff.Max", "1s", "Min up to 2h"}, field{"Backoff.Factor", "0.5", "1 or more"}),
		badConsumer("numbers below zero", func(c *consumer.Config) { c.Workers, c.MaxAttempts, c.MissingID = -1, -2, 9 },
			field{"Workers", "-1", "1 to 1000"}, field{"MaxAttempts", "-2", "1 or more"}, field{"MissingID", "9", "MissingDead or MissingRetry"}),
		badConsumer("too many workers", func(c *consumer.Config) { c.Workers = 1001 }, field{"Workers", "1001", "1 to 1000"}),
		badConsumer("RocketMQ's own group", func(c *consumer.Config) { c.Group = "TOOLS_CONSUMER" }, field{"Group", "TOOLS_CONSUMER", "not RocketMQ's own"}),
		badConsumer("secret key alone", func(c *consumer.Config) { c.Broker.SecretKey = secret }, field{"Broker.AccessKey", "", "both keys or neither"}),
		badConsumer("several at once", func(c *consumer.Config) {
			c.Group, c.Workers, c.Drain, c.Handlers, c.Broker.NameServers = "a b", -3, -1, nil, []string{"mq:9876"}
		},
			field{"Group", "a b", "1 to 120 letters"}, field{"Workers", "-3", "1 to 1000"}, field{"Drain", "-1ns", "more than 0"},
			field{"Handlers", "", "at least one"}, field{"Broker.NameServers[0]", "mq:9876", "ip:port"}),
	})
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	bad := func(name string, handlers []consumer.Handler, fields ...field) row {
		return badConsumer(name, func(c *consumer.Config) { c.Handlers = handlers }, fields...)
	}
	do := work()
	run(t, []row{
		bad("none", nil, field{"Handlers", "", "at least one"}),
		bad("one without topic and work", []consumer.Handler{{}},
			field{"Handlers[0].Topic", "", "1 to 127 letters"}, field{"Handlers[0].Do", "", "consumer.Atomic(fn)"}),
		bad("functions that are nil", []consumer.Handler{
			{Topic: "a", Do: consumer.Atomic(nil)}, {Topic: "b", Do: consumer.Tracked(nil)}, {Topic: "c", Do: consumer.External(nil)},
		},
			field{"Handlers[0].Do", "", "a"}, field{"Handlers[1].Do", "", "consumer.Tracked(fn)"}, field{"Handlers[2].Do", "", "consumer.External(fn)"}),
		bad("registered twice", []consumer.Handler{{Topic: "order-paid", Do: do}, {Topic: "order-paid", Do: do}},
			field{"Handlers[1].Name", "order-paid", "which Handlers[0] has"}, field{"Handlers[1].Tags", `""`, "Handlers[0]"}),
		bad("clashing tags", []consumer.Handler{{Topic: "a", Tags: "x || y", Name: "first", Do: do}, {Topic: "a", Tags: "y||z", Name: "second", Do: do}},
			field{"Handlers[1].Tags", "y||z", "Handlers[0] (first) wants y too"}),
		bad("all tags beside some", []consumer.Handler{{Topic: "a", Tags: "x", Name: "first", Do: do}, {Topic: "a", Name: "second", Do: do}},
			field{"Handlers[1].Tags", `""`, "Handlers[0] (first) wants x too"}),
		bad("clashing names", []consumer.Handler{{Topic: "a", Name: "shares", Do: do}, {Topic: "b", Name: "shares", Do: do}},
			field{"Handlers[1].Name", "shares", "which Handlers[0] has"}),
		bad("SQL92 for tags", []consumer.Handler{{Topic: "a", Tags: "amount > 10", Do: do}}, field{"Handlers[0].Tags", "amount > 10", "SQL92 filters are not supported"}),
		bad("half a list of tags", []consumer.Handler{{Topic: "a", Tags: "x || ", Do: do}}, field{"Handlers[0].Tags", "x || ", `the part ""`}),
		bad("topics", []consumer.Handler{{Topic: "a b", Do: do}, {Topic: "%RETRY%g", Do: do}},
			field{"Handlers[0].Topic", "a b", "1 to 127 letters"}, field{"Handlers[1].Topic", "%RETRY%g", "no retry topic"}),
		bad("an over-long name", []consumer.Handler{{Topic: "a", Name: strings.Repeat("n", 256), Do: do}},
			field{"Handlers[0].Name", "nnnn", "at most 255 bytes"}),
	})
}

// TestRunUnreachable: all that a Run leaves is the row in t_run that it began
// with, and that says by then that it has ended.
func TestRunUnreachable(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, w *world, nameServers ...string) error {
		t.Helper()
		cfg := w.consumerConfig()
		cfg.Broker = txmq.Broker{NameServers: nameServers}
		c, err := consumer.New(cfg)
		must(t, err)
		return w.run(t, c)
	}
	run(t, []row{
		{
			name: "nobody listens", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"consumer: ", "name server 127.0.0.1:1, 127.0.0.1:2"},
			call: func(t *testing.T, w *world) error { return start(t, w, "127.0.0.1:1", "127.0.0.1:2") },
		},
		{
			name: "nobody answers", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"consumer: ", "name server 127.0.0.1:"},
			within: 9 * time.Second, // twice 3 s each, and the database's part
			call:   func(t *testing.T, w *world) error { return start(t, w, silent(t)) },
		},
		{
			name: "a topic that does not exist", is: []error{txmq.ErrRefused}, says: []string{`topic "absent-`, "does not exist", "create it"},
			call: func(t *testing.T, w *world) error {
				cfg := w.consumerConfig()
				cfg.Handlers[0].Topic = w.absent(t).Topic
				c, err := consumer.New(cfg)
				must(t, err)
				return w.run(t, c)
			},
		},
	})
}

// run is Run, and sees to its row.
func (w *world) run(t *testing.T, c *consumer.Consumer) error {
	t.Helper()
	err := c.Run(t.Context())
	ended := w.db.Exec("DELETE FROM t_run WHERE stopped_at IS NOT NULL")
	must(t, ended.Error)
	if ended.RowsAffected != 1 {
		t.Errorf("%d runs are noted as ended, want 1", ended.RowsAffected)
	}
	return err
}
