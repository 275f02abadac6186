package badinput

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

func TestProducerConfig(t *testing.T) {
	t.Parallel()
	bad := func(name string, spoil func(*producer.Config), fields ...field) row {
		for i := range fields {
			fields[i].name = "producer.Config." + fields[i].name
		}
		return row{name: name, fields: fields, call: func(_ *testing.T, w *world) error {
			c := w.config()
			spoil(&c)
			_, err := producer.New(c)
			return err
		}}
	}
	run(t, []row{
		bad("nothing", func(c *producer.Config) { *c = producer.Config{} },
			field{"Store", "", "*model.Store"}, field{"Broker.NameServers", "", "ip:port"}, field{"Group", "", "1 to 120 letters"},
			field{"Topics", "", "the topics"}),
		bad("durations below zero", func(c *producer.Config) {
			c.SendTimeout, c.FenceAfter, c.CheckInterval, c.CheckTimeout, c.Drain = -time.Second, -time.Minute, -1, -2, -3
		},
			field{"SendTimeout", "-1s", "1ms or more"}, field{"FenceAfter", "-1m0s", "more than 0"},
			field{"CheckInterval", "-1ns", "more than 0"}, field{"CheckTimeout", "-2ns", "more than 0"}, field{"Drain", "-3ns", "more than 0"}),
		bad("durations without a unit", func(c *producer.Config) { c.SendTimeout, c.CheckTimeout = 3, 2 },
			field{"SendTimeout", "3ns", "1ms or more"}, field{"CheckTimeout", "2ns", "1ms or more"}),
		bad("fence after all checks", func(c *producer.Config) { c.FenceAfter = time.Hour },
			field{"FenceAfter", "1h0m0s", "less than 15 checks every 30s"}),
		bad("numbers", func(c *producer.Config) { c.Retries, c.MaxChecks = 17, 1 },
			field{"Retries", "17", "1 to 16, -1 for none"}, field{"MaxChecks", "1", "2 or more"}),
		bad("names", func(c *producer.Config) { c.Group, c.Topics = "my group", []string{"ok", "", "a b", "TBW102"} },
			field{"Group", "my group", "1 to 120 letters"}, field{"Topics[1]", `""`, "1 to 127 letters"},
			field{"Topics[2]", "a b", "1 to 127 letters"}, field{"Topics[3]", "TBW102", "not RocketMQ's own"}),
		bad("RocketMQ's own group", func(c *producer.Config) { c.Group = "DEFAULT_PRODUCER" },
			field{"Group", "DEFAULT_PRODUCER", "not RocketMQ's own"}),
		bad("over-long group", func(c *producer.Config) { c.Group = strings.Repeat("g", 121) },
			field{"Group", "(121 bytes)", "1 to 120 letters"}),
		bad("addresses", func(c *producer.Config) {
			c.Broker.NameServers = []string{"mq:9876", "127.0.0.1", "127.0.0.1:1;127.0.0.1:2"}
		},
			field{"Broker.NameServers[0]", "mq:9876", "ip:port"}, field{"Broker.NameServers[1]", "127.0.0.1", "ip:port"},
			field{"Broker.NameServers[2]", "127.0.0.1:1;", "ip:port"}),
		bad("access key alone", func(c *producer.Config) { c.Broker.AccessKey = "a" }, field{"Broker.SecretKey", "", "both keys or neither"}),
		bad("secret key alone", func(c *producer.Config) { c.Broker.SecretKey = secret }, field{"Broker.AccessKey", "", "both keys or neither"}),
	})
}

func TestSenderConfig(t *testing.T) {
	t.Parallel()
	bad := func(name string, spoil func(*producer.SenderConfig), fields ...field) row {
		for i := range fields {
			fields[i].name = "producer.SenderConfig." + fields[i].name
		}
		return row{name: name, fields: fields, call: func(_ *testing.T, w *world) error {
			c := w.senderConfig()
			spoil(&c)
			_, err := producer.NewSender(c)
			return err
		}}
	}
	run(t, []row{
		bad("nothing", func(c *producer.SenderConfig) { *c = producer.SenderConfig{} },
			field{"Broker.NameServers", "", "ip:port"}, field{"Group", "", "1 to 120 letters"}),
		bad("every field", func(c *producer.SenderConfig) {
			*c = producer.SenderConfig{
				Broker: txmq.Broker{NameServers: []string{"mq:9876"}, SecretKey: secret}, Group: "a b", SendTimeout: -1, Retries: -2,
				Backoff: producer.Backoff{Min: -time.Second, Max: -time.Minute}, Drain: -1,
			}
		},
			field{"Broker.NameServers[0]", "mq:9876", "ip:port"}, field{"Broker.AccessKey", "", "both keys or neither"},
			field{"Group", "a b", "1 to 120 letters"}, field{"SendTimeout", "-1ns", "1ms or more"}, field{"Retries", "-2", "-1 for none"},
			field{"Backoff.Min", "-1s", "more than 0"}, field{"Backoff.Max", "-1m0s", "more than 0"}, field{"Drain", "-1ns", "more than 0"}),
		bad("pauses that shrink", func(c *producer.SenderConfig) { c.Backoff = producer.Backoff{Min: time.Minute, Max: time.Second} },
			field{"Backoff.Max", "1s", "Backoff.Min (1m0s) or more"}),
		bad("too many retries", func(c *producer.SenderConfig) { c.Retries = 17 }, field{"Retries", "17", "1 to 16"}),
		bad("a unit forgotten", func(c *producer.SenderConfig) { c.SendTimeout = 3 }, field{"SendTimeout", "3ns", "1ms or more"}),
	})
}

func TestChecker(t *testing.T) {
	t.Parallel()
	run(t, []row{
		{
			name: "every field",
			call: func(*testing.T, *world) error {
				_, err := checker.New(checker.Config{
					Group: strings.Repeat("g", 256), FenceAfter: -1, MaxChecks: 1, Interval: -2, Timeout: -3,
				})
				return err
			},
			fields: []field{
				{"checker.Config.Store", "", "*model.Store"},
				{"checker.Config.Group", "256 bytes", "at most 255 bytes"},
				{"checker.Config.FenceAfter", "-1ns", "more than 0"},
				{"checker.Config.MaxChecks", "1", "2 or more"},
				{"checker.Config.Interval", "-2ns", "more than 0"},
				{"checker.Config.Timeout", "-3ns", "more than 0"},
			},
		},
		{
			name: "Listener without anything",
			call: func(*testing.T, *world) error {
				_, err := checker.NewListener(checker.Config{}, nil)
				return err
			},
			fields: []field{{"checker.Config.Store", "", "*model.Store"}, {"checker.NewListener fn", "", "a function"}},
		},
		{
			name: "fence after all checks",
			call: func(_ *testing.T, w *world) error {
				_, err := checker.New(checker.Config{Store: w.store, FenceAfter: 20 * time.Second, MaxChecks: 2, Interval: 10 * time.Second})
				return err
			},
			fields: []field{{"checker.Config.FenceAfter", "20s", "less than 2 checks every 10s"}},
		},
		{
			name: "Resolve without a store", fields: []field{{"checker.Resolve store", "", "*model.Store"}},
			call: func(t *testing.T, _ *world) error {
				_, err := checker.Resolve(t.Context(), nil, model.Attempt{})
				return err
			},
		},
		{
			name: "Resolve of nothing",
			call: func(t *testing.T, w *world) error {
				_, err := checker.Resolve(t.Context(), w.store, model.Attempt{})
				return err
			},
			fields: []field{
				{"attempt", "", "1 to 255 bytes"},
				{"topic", "", "1 to 255 bytes"},
				{"event ID", "", "1 to 255 bytes"},
				{"producer group", "", "1 to 255 bytes"},
			},
		},
		{
			name: "Resolve of an over-long attempt",
			call: func(t *testing.T, w *world) error {
				_, err := checker.Resolve(t.Context(), w.store, model.Attempt{
					ID: strings.Repeat("a", 5000), Topic: w.topic, EventID: strings.Repeat("e", 256), Group: "g",
				})
				return err
			},
			fields: []field{{"attempt", "(5000 bytes)", "at most 255 bytes"}, {"event ID", "(256 bytes)", "at most 255 bytes"}},
		},
		{
			name: "producer's Resolve of another error",
			call: func(t *testing.T, w *world) error {
				_, err := w.producer.Resolve(t.Context(), errors.New("disk full"))
				return err
			},
			fields: []field{{"producer.Resolve err", "disk full", "txmq.ErrOutcomeUnknown"}},
		},
		{
			name: "producer's Resolve of no error",
			call: func(t *testing.T, w *world) error {
				_, err := w.producer.Resolve(context.WithoutCancel(t.Context()), nil)
				return err
			},
			fields: []field{{"producer.Resolve err", "", "txmq.ErrOutcomeUnknown"}},
		},
	})
}
