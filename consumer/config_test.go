package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

func TestConfigReportsEveryBadField(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Group: "bad group!", Workers: -1, MaxAttempts: -1, Deadline: 2 * time.Minute, Lease: time.Minute,
		ConsumeTimeout: 90 * time.Second, ClaimWait: -1, Drain: -1, MissingID: 9,
		Backoff:  Backoff{Min: time.Hour, Max: time.Minute, Factor: 0.5, Jitter: 3},
		Handlers: []Handler{{}, {Topic: "a", Do: Atomic(pay)}, {Topic: "a", Name: strings.Repeat("n", 256), Do: Atomic(nil)}},
	})
	for _, field := range []string{
		"consumer.Config.Store", "consumer.Config.Broker", "consumer.Config.Group", "consumer.Config.Workers",
		"consumer.Config.MaxAttempts", "consumer.Config.Deadline", "consumer.Config.ConsumeTimeout",
		"consumer.Config.ClaimWait", "consumer.Config.Drain", "consumer.Config.MissingID",
		"consumer.Config.Backoff.Max", "consumer.Config.Backoff.Factor", "consumer.Config.Backoff.Jitter",
		"Handlers[0].Topic", "Handlers[0].Do", "Handlers[2].Tags", "Handlers[2].Name", "Handlers[2].Do",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s:\n%v", field, err)
		}
	}
	var field *txmq.FieldError
	if !errors.As(err, &field) {
		t.Errorf("error = %T, want *txmq.FieldError in it", err)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Jitter: -1}.withDefaults()
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 5000: time.Hour} {
		if got := b.after(attempt); got != want {
			t.Errorf("after(%d) = %v, want %v", attempt, got, want)
		}
	}
	spread := Backoff{}.withDefaults()
	for range 100 {
		if got := spread.after(1); got < 800*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("after(1) = %v, want 1s ±20 %%", got)
		}
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, c := range map[string]struct {
		change func(*Config)
		fields []string
	}{
		"no store":                           {func(c *Config) { c.Store = nil }, []string{"Store"}},
		"no broker":                          {func(c *Config) { c.Broker = txmq.Broker{} }, []string{"Broker.NameServers"}},
		"no group":                           {func(c *Config) { c.Group = "" }, []string{"Group"}},
		"a group of RocketMQ's own":          {func(c *Config) { c.Group = "TOOLS_CONSUMER" }, []string{"Group"}},
		"workers below zero":                 {func(c *Config) { c.Workers = -1 }, []string{"Workers"}},
		"more workers than the client takes": {func(c *Config) { c.Workers = 1001 }, []string{"Workers"}},
		"attempts below zero":                {func(c *Config) { c.MaxAttempts = -1 }, []string{"MaxAttempts"}},
		"a deadline below zero":              {func(c *Config) { c.Deadline = -second }, []string{"Deadline"}},
		"a lease below zero":                 {func(c *Config) { c.Lease = -second }, []string{"Lease", "Deadline"}},
		"a deadline as long as the lease":    {func(c *Config) { c.Deadline, c.Lease = second, second }, []string{"Deadline"}},
		"a lease as long as ConsumeTimeout":  {func(c *Config) { c.Lease = 15 * time.Minute }, []string{"Lease"}},
		"half a minute of ConsumeTimeout":    {func(c *Config) { c.ConsumeTimeout = 90 * second }, []string{"ConsumeTimeout"}},
		"ClaimWait and Drain below zero":     {func(c *Config) { c.ClaimWait, c.Drain = -second, -second }, []string{"ClaimWait", "Drain"}},
		"a wait as long as the deadline":     {func(c *Config) { c.Wait.Max = 30 * second }, []string{"Wait.Max"}},
		"a poll without a wait":              {func(c *Config) { c.Wait.Poll = second }, []string{"Wait.Poll"}},
		"a back-off that ends below its min": {func(c *Config) { c.Backoff = Backoff{Min: time.Minute, Max: second} }, []string{"Backoff.Max"}},
		"a back-off above the broker's":      {func(c *Config) { c.Backoff.Max = 3 * time.Hour }, []string{"Backoff.Max"}},
		"a back-off that shrinks":            {func(c *Config) { c.Backoff.Factor = 0.5 }, []string{"Backoff.Factor"}},
		"a word that is none of MissingID's": {func(c *Config) { c.MissingID = 9 }, []string{"MissingID"}},
		"several at once": {
			func(c *Config) { c.Group, c.Workers, c.Handlers = "a b", -3, nil }, []string{"Group", "Workers", "Handlers"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{
				Store: new(model.Store), Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "g",
				Handlers: []Handler{{Topic: "a", Do: Atomic(pay)}},
			}
			c.change(&cfg)
			_, err := New(cfg)
			if err == nil {
				t.Fatal("New = nil")
			}
			for _, field := range c.fields {
				if !namesField(err, "consumer.Config."+field) {
					t.Errorf("New = %v, want %s named", err, field)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n != len(c.fields) {
				t.Errorf("New = %v, want %d lines", err, len(c.fields))
			}
		})
	}
}

// namesField tells whether a *txmq.FieldError in err is about the field.
func namesField(err error, field string) bool {
	switch e := err.(type) { //nolint:errorlint // it looks into joined ones itself
	case *txmq.FieldError:
		return e.Field == field
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return namesField(err, field) })
	case interface{ Unwrap() error }:
		return namesField(e.Unwrap(), field)
	default:
		return false
	}
}
