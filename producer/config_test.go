package producer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

func TestNewReportsEveryField(t *testing.T) {
	t.Parallel()
	_, store := open(t, onSQLite(t), nil)
	good := Config{Store: store, Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "orders", Topics: []string{"paid"}}
	with := func(change func(*Config)) Config {
		c := good
		change(&c)
		return c
	}
	tests := []struct {
		name   string
		cfg    Config
		fields []string
	}{
		{"good", good, nil},
		{"no retries", with(func(c *Config) { c.Retries = -1 }), nil},
		{"nothing", Config{}, []string{"Topics", "Store", "Broker.NameServers", "Group"}},
		{"every number", with(func(c *Config) {
			c.Retries, c.SendTimeout, c.Drain, c.FenceAfter, c.MaxChecks, c.CheckInterval, c.CheckTimeout = -2, -1, -1, -1, -1, -1, -1
		}), []string{"Retries", "Drain", "MaxChecks", "CheckInterval", "CheckTimeout", "FenceAfter", "SendTimeout"}},
		{"B10 immunity longer than all checks", with(func(c *Config) { c.FenceAfter = time.Hour }), []string{"FenceAfter"}},
		{"host name", with(func(c *Config) { c.Broker.NameServers = []string{"mq:9876"} }), []string{"Broker.NameServers[0]"}},
		{"topic", with(func(c *Config) { c.Topics = []string{"a b"} }), []string{"Topics[0]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := New(tt.cfg)
			var got []string
			if many, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range many.Unwrap() {
					var f *txmq.FieldError
					if !errors.As(e, &f) {
						t.Fatalf("New = %v, want field errors", e)
					}
					got = append(got, f.Field[len("producer.Config."):])
				}
			} else if err != nil {
				t.Fatalf("New = %v, want joined errors", err)
			}
			if !slices.Equal(got, tt.fields) {
				t.Errorf("New = %v, want fields %v", err, tt.fields)
			}
			if err == nil {
				must(t, p.Close(t.Context()))
			}
		})
	}
}

func TestCloseWaitsNoLongerThanDrain(t *testing.T) {
	t.Parallel()
	b := setup(t, onSQLite(t))
	p, sim := b.producer(t, func(c *Config) { c.Drain = time.Minute })
	must(t, p.Close(context.WithoutCancel(t.Context())))
	if rest := time.Until(sim.closeBy); rest <= 0 || rest > time.Minute {
		t.Errorf("Close gave %v, want a minute at most", rest)
	}
}

func TestDefaultsReachTheParts(t *testing.T) {
	t.Parallel()
	_, store := open(t, onSQLite(t), nil)
	for given, want := range map[int]int{0: DefaultRetries, -1: 0, 5: 5} {
		var got rocketmq.TxConfig
		_, err := newProducer(Config{Store: store, Topics: []string{"paid"}, Retries: given},
			func(c rocketmq.TxConfig) (halves, error) { got = c; return nil, nil })
		must(t, err)
		if got.Retries != want || got.SendTimeout != DefaultSendTimeout || got.CheckTimeout != 2*time.Second || got.Logger != nil {
			t.Errorf("Retries %d gives %+v, want %d and the defaults", given, got, want)
		}
	}
}
