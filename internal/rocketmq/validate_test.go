package rocketmq

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/txmq/txmq"
)

// fields are the names of the bad fields that err reports.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	var names []string
	for _, e := range errs {
		var f *txmq.FieldError
		if inner, ok := e.(interface{ Unwrap() []error }); ok {
			names = append(names, fields(t, errors.Join(inner.Unwrap()...))...)
			continue
		}
		if !errors.As(e, &f) {
			t.Fatalf("%v is no *txmq.FieldError", e)
		}
		names = append(names, f.Field)
	}
	return names
}

func TestCheckMessage(t *testing.T) {
	t.Parallel()
	good := func() txmq.Message {
		return txmq.Message{Topic: "order-paid", EventID: "pay:1", Tag: "paid", Keys: []string{"o1"}, Body: []byte("x")}
	}
	prop := func(name, value string) func(*txmq.Message) {
		return func(m *txmq.Message) { m.Properties = map[string]string{name: value} }
	}
	big := strings.Repeat("x", txmq.MaxPropertyBytes)
	tests := []struct {
		name   string
		change func(*txmq.Message)
		want   []string // bad fields, without "txmq.Message."
	}{
		{"good", func(*txmq.Message) {}, nil},
		{"everything", func(m *txmq.Message) {
			m.ShardingKey, m.Properties = "k", map[string]string{"größe": "schön", "traceparent": "00-1-2-01"}
		}, nil},
		{"no event ID", func(m *txmq.Message) { m.EventID = "" }, nil},
		{"no topic", func(m *txmq.Message) { m.Topic = "" }, []string{"Topic"}},
		{"topic of 127", func(m *txmq.Message) { m.Topic = strings.Repeat("t", 127) }, nil},
		{"topic of 128", func(m *txmq.Message) { m.Topic = strings.Repeat("t", 128) }, []string{"Topic"}},
		{"topic with space", func(m *txmq.Message) { m.Topic = "a b" }, []string{"Topic"}},
		{"topic in Greek", func(m *txmq.Message) { m.Topic = "τ" }, []string{"Topic"}},
		{"retry topic", func(m *txmq.Message) { m.Topic = "%RETRY%g" }, []string{"Topic"}},
		{"broker's topic", func(m *txmq.Message) { m.Topic = "TRANS_CHECK_MAX_TIME_TOPIC" }, []string{"Topic"}},
		{"event ID of 255", func(m *txmq.Message) { m.EventID = strings.Repeat("e", 255) }, nil},
		{"event ID of 256", func(m *txmq.Message) { m.EventID = strings.Repeat("e", 256) }, []string{"EventID"}},
		{"event ID not UTF-8", func(m *txmq.Message) { m.EventID = "a\xff" }, []string{"EventID"}},
		{"event ID with control character", func(m *txmq.Message) { m.EventID = "a\x02UNIQ_KEY\x01b" }, []string{"EventID"}},
		{"tag with bars", func(m *txmq.Message) { m.Tag = "a||b" }, []string{"Tag"}},
		{"tag with space at its end", func(m *txmq.Message) { m.Tag = "a " }, []string{"Tag"}},
		{"tag star", func(m *txmq.Message) { m.Tag = "*" }, []string{"Tag"}},
		{"tag with control character", func(m *txmq.Message) { m.Tag = "a\x01" }, []string{"Tag"}},
		{"key with space", func(m *txmq.Message) { m.Keys = []string{"a", "b c"} }, []string{"Keys[1]"}},
		{"empty key", func(m *txmq.Message) { m.Keys = []string{""} }, []string{"Keys[0]"}},
		{"sharding key with control character", func(m *txmq.Message) { m.ShardingKey = "\x01" }, []string{"ShardingKey"}},
		{"no body", func(m *txmq.Message) { m.Body = nil }, []string{"Body"}},
		{"largest body", func(m *txmq.Message) { m.Body = make([]byte, txmq.MaxBodyBytes) }, nil},
		{"larger body", func(m *txmq.Message) { m.Body = make([]byte, txmq.MaxBodyBytes+1) }, []string{"Body"}},
		{"Q16 forged", prop("a", "1\x02UNIQ_KEY\x01forged"), []string{`Properties["a"]`}},
		{"Q16 vanished", prop("note", "x\x01y"), []string{`Properties["note"]`}},
		{"forged in a name", prop("a\x01b\x02c", "1"), []string{`Properties["a\x01b\x02c"]`}},
		{"empty value", prop("a", ""), []string{`Properties["a"]`}},
		{"empty name", prop("", "1"), []string{`Properties[""]`}},
		{"value not UTF-8", prop("a", "\xff"), []string{`Properties["a"]`}},
		{"ours", prop("TXMQ_EVENT_ID", "1"), []string{`Properties["TXMQ_EVENT_ID"]`}},
		{"ours, later", prop("TXMQ_NEW", "1"), []string{`Properties["TXMQ_NEW"]`}},
		{"too many bytes", prop("a", big), []string{"Properties"}},
		{"delay", func(m *txmq.Message) { m.DelayLevel = 18 }, nil},
		{"delay unknown", func(m *txmq.Message) { m.DelayLevel = 19 }, []string{"DelayLevel"}},
		{"delay below", func(m *txmq.Message) { m.DelayLevel = -1 }, []string{"DelayLevel"}},
		{"all at once", func(m *txmq.Message) {
			*m = txmq.Message{Tag: "a||b", DelayLevel: 77, Properties: map[string]string{"KEYS": "x", "DELAY": "1"}}
		}, []string{"Topic", "Tag", "Body", `Properties["DELAY"]`, `Properties["KEYS"]`, "DelayLevel"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := good()
			tt.change(&m)
			var want []string
			for _, w := range tt.want {
				want = append(want, "txmq.Message."+w)
			}
			if got := fields(t, CheckMessage(m, false)); !slices.Equal(got, want) {
				t.Errorf("CheckMessage = %q, want %q", got, want)
			}
		})
	}

	t.Run("every reserved name", func(t *testing.T) {
		t.Parallel()
		for name := range reservedProperties {
			m := good()
			m.Properties = map[string]string{name: "1"}
			if CheckMessage(m, false) == nil {
				t.Errorf("property %s is let through", name)
			}
		}
	})
	t.Run("B11 a transactional message can't be delayed", func(t *testing.T) {
		t.Parallel()
		m := good()
		m.DelayLevel = 1
		if got, want := fields(t, CheckMessage(m, true)), []string{"txmq.Message.DelayLevel"}; !slices.Equal(got, want) {
			t.Errorf("CheckMessage = %q, want %q", got, want)
		}
		for _, timer := range []string{"TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "DELAY"} {
			m := good()
			m.Properties = map[string]string{timer: "1"}
			if CheckMessage(m, true) == nil {
				t.Errorf("property %s is let through", timer)
			}
		}
	})
	t.Run("no body and no value in the error", func(t *testing.T) {
		t.Parallel()
		m := good()
		m.Body = []byte(strings.Repeat("s3cret", txmq.MaxBodyBytes))
		m.Properties = map[string]string{"a": "s3cret\x01", "KEYS": "s3cret"}
		if err := CheckMessage(m, false); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("CheckMessage = %.200v, want an error without the values", err)
		}
	})
}

func TestCheckBroker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		broker txmq.Broker
		want   []string
	}{
		{"one", txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, nil},
		{"two and keys", txmq.Broker{NameServers: []string{"10.0.0.1:9876", "10.0.0.2:9876"}, AccessKey: "a", SecretKey: "s"}, nil},
		{"none", txmq.Broker{}, []string{"B.NameServers"}},
		{"host name", txmq.Broker{NameServers: []string{"127.0.0.1:9876", "mq:9876"}}, []string{"B.NameServers[1]"}},
		{"no port", txmq.Broker{NameServers: []string{"127.0.0.1"}}, []string{"B.NameServers[0]"}},
		{"port 0", txmq.Broker{NameServers: []string{"127.0.0.1:0"}}, []string{"B.NameServers[0]"}},
		{"list in one", txmq.Broker{NameServers: []string{"127.0.0.1:9876;127.0.0.2:9876"}}, []string{"B.NameServers[0]"}},
		{"url", txmq.Broker{NameServers: []string{"http://127.0.0.1:9876"}}, []string{"B.NameServers[0]"}},
		{"access key alone", txmq.Broker{NameServers: []string{"127.0.0.1:9876"}, AccessKey: "a"}, []string{"B.SecretKey"}},
		{"secret key alone", txmq.Broker{NameServers: []string{"127.0.0.1:9876"}, SecretKey: "s3cret"}, []string{"B.AccessKey"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := CheckBroker(tt.broker, "B")
			if got := fields(t, err); !slices.Equal(got, tt.want) {
				t.Errorf("CheckBroker = %q, want %q", got, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("CheckBroker = %v: shows the secret", err)
			}
		})
	}
}

func TestCheckGroup(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"orders": true, "a|b%c_d-1": true, strings.Repeat("g", 120): true,
		"": false, "a b": false, "größe": false, strings.Repeat("g", 121): false,
		"CID_RMQ_SYS_TRANS": false, "DEFAULT_CONSUMER": false, "CLIENT_INNER_PRODUCER": false,
	} {
		err := CheckGroup(name, "C.Group")
		if (err == nil) != ok {
			t.Errorf("CheckGroup(%q) = %v, want ok %v", name, err, ok)
		}
	}
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	_, err := NewTxProducer(TxConfig{Topics: []string{"a b"}, Retries: -1})
	want := []string{"TxConfig.Broker.NameServers", "TxConfig.Group", "TxConfig.Topics[0]", "TxConfig.Retries", "TxConfig.Check"}
	if got := fields(t, err); !slices.Equal(got, want) {
		t.Errorf("NewTxProducer = %q, want %q", got, want)
	}
	_, err = NewPushConsumer(PushConfig{Subscriptions: []Subscription{{Topic: "a"}, {Topic: "a"}, {Topic: "%RETRY%g"}}, ConsumeTimeout: 1})
	want = []string{
		"PushConfig.Broker.NameServers", "PushConfig.Group", "PushConfig.Subscriptions[1].Topic",
		"PushConfig.Subscriptions[2].Topic", "PushConfig.ConsumeTimeout", "PushConfig.Handle",
	}
	if got := fields(t, err); !slices.Equal(got, want) {
		t.Errorf("NewPushConsumer = %q, want %q", got, want)
	}
	_, err = NewSender(SenderConfig{Retries: 99})
	want = []string{"SenderConfig.Broker.NameServers", "SenderConfig.Group", "SenderConfig.Retries"}
	if got := fields(t, err); !slices.Equal(got, want) {
		t.Errorf("NewSender = %q, want %q", got, want)
	}
}
