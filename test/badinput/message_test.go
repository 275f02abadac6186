package badinput

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

// bad are messages that neither way of sending takes.
var bad = []struct {
	name   string
	spoil  func(*txmq.Message)
	fields []field
}{
	{"no topic", func(m *txmq.Message) { m.Topic = "" }, []field{{"txmq.Message.Topic", "", "1 to 127 letters"}}},
	{"topic with a space", func(m *txmq.Message) { m.Topic = "order paid" }, []field{{"txmq.Message.Topic", "order paid", "1 to 127 letters"}}},
	{"over-long topic", func(m *txmq.Message) { m.Topic = strings.Repeat("t", 128) }, []field{{"txmq.Message.Topic", "(128 bytes)", "1 to 127 letters"}}},
	{"retry topic", func(m *txmq.Message) { m.Topic = "%RETRY%g" }, []field{{"txmq.Message.Topic", "%RETRY%g", "not RocketMQ's own"}}},
	{"over-long event ID", func(m *txmq.Message) { m.EventID = strings.Repeat("e", 256) }, []field{{"txmq.Message.EventID", "(256 bytes)", "at most 255 bytes"}}},
	{"event ID with a control character", func(m *txmq.Message) { m.EventID = "pay\x02UNIQ_KEY\x01x" }, []field{{"txmq.Message.EventID", "UNIQ_KEY", "without control characters"}}},
	{"event ID that is not UTF-8", func(m *txmq.Message) { m.EventID = "pay\xff" }, []field{{"txmq.Message.EventID", "pay", "valid UTF-8"}}},
	{"tag of two", func(m *txmq.Message) { m.Tag = "a||b" }, []field{{"txmq.Message.Tag", "a||b", "without ||"}}},
	{"key with a space", func(m *txmq.Message) { m.Keys = []string{"a", "b c"} }, []field{{"txmq.Message.Keys[1]", "b c", "without spaces"}}},
	{"over-long sharding key", func(m *txmq.Message) { m.ShardingKey = strings.Repeat("k", 256) }, []field{{"txmq.Message.ShardingKey", "(256 bytes)", "at most 255 bytes"}}},
	{"no body", func(m *txmq.Message) { m.Body = nil }, []field{{"txmq.Message.Body", "", "1 to 4128768 bytes"}}},
	{
		"body too large", func(m *txmq.Message) { m.Body = []byte(strings.Repeat(secret, 700_000)) },
		[]field{{"txmq.Message.Body", "4200000 bytes", "1 to 4128768 bytes"}},
	},
	{
		"reserved properties", func(m *txmq.Message) {
			m.Properties = map[string]string{"TXMQ_EVENT_ID": secret, "KEYS": secret, "DELAY": "3", "TRAN_MSG": "true"}
		},
		[]field{
			{`txmq.Message.Properties["TXMQ_EVENT_ID"]`, "6 bytes", "neither RocketMQ's nor txmq's"},
			{`txmq.Message.Properties["KEYS"]`, "6 bytes", "neither RocketMQ's nor txmq's"},
			{`txmq.Message.Properties["DELAY"]`, "1 bytes", "neither RocketMQ's nor txmq's"},
			{`txmq.Message.Properties["TRAN_MSG"]`, "4 bytes", "neither RocketMQ's nor txmq's"},
		},
	},
	{
		"forged property", func(m *txmq.Message) { m.Properties = map[string]string{"note": secret + "\x02UNIQ_KEY\x01x"} },
		[]field{{`txmq.Message.Properties["note"]`, "17 bytes", "without control characters"}},
	},
	{"empty property", func(m *txmq.Message) { m.Properties = map[string]string{"note": ""} }, []field{{`txmq.Message.Properties["note"]`, "0 bytes", "not empty"}}},
	{
		"too many properties", func(m *txmq.Message) { m.Properties = map[string]string{"note": strings.Repeat(secret, 6000)} },
		[]field{{"txmq.Message.Properties", " bytes", fmt.Sprintf("at most %d bytes", txmq.MaxPropertyBytes)}},
	},
	{"delay level below zero", func(m *txmq.Message) { m.DelayLevel = -1 }, []field{{"txmq.Message.DelayLevel", "-1", "0"}}},
	{
		"everything at once", func(m *txmq.Message) {
			*m = txmq.Message{EventID: "\x01", Tag: "*", Keys: []string{""}, DelayLevel: 77}
		},
		[]field{
			{"txmq.Message.Topic", "", "1 to 127 letters"},
			{"txmq.Message.EventID", `\x01`, "without control characters"},
			{"txmq.Message.Tag", "*", "not *"},
			{"txmq.Message.Keys[0]", `""`, "not empty"},
			{"txmq.Message.Body", "", "1 to 4128768 bytes"},
			{"txmq.Message.DelayLevel", "77", "0"},
		},
	},
}

func TestSendInTransaction(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, w *world, m txmq.Message) error {
		t.Helper()
		_, err := w.producer.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
			t.Error("the local function ran")
			return pay(tx)
		})
		return err
	}
	rows := make([]row, 0, len(bad)+3)
	for _, b := range bad {
		rows = append(rows, row{name: b.name, fields: b.fields, call: func(t *testing.T, w *world) error {
			m := w.message()
			b.spoil(&m)
			return send(t, w, m)
		}})
	}
	rows = append(rows,
		row{
			name: "delay", fields: []field{{"txmq.Message.DelayLevel", "3", "a transactional message can't be delayed"}},
			call: func(t *testing.T, w *world) error {
				m := w.message()
				m.DelayLevel = 3
				return send(t, w, m)
			},
		},
		row{
			name:   "no function, and no topic",
			fields: []field{{"producer.SendInTransaction fn", "", "a function"}, {"txmq.Message.Topic", "", "1 to 127 letters"}},
			call: func(t *testing.T, w *world) error {
				m := w.message()
				m.Topic = ""
				_, err := w.producer.SendInTransaction(t.Context(), m, nil)
				return err
			},
		},
		row{
			name: "unknown topic", is: []error{txmq.ErrRefused}, says: []string{`topic "absent-`, "does not exist", "create it"},
			call: func(t *testing.T, w *world) error { return send(t, w, w.absent(t)) },
		},
	)
	run(t, rows)
}

// TestNested: a message inside a local function could be visible though the
// outer transaction is rolled back.
func TestNested(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sent, written := w.sent(), w.written(t)
	r := row{
		is:     []error{txmq.ErrInTransaction},
		fields: []field{{"producer.SendInTransaction ctx", "a local transaction's", "after"}},
	}
	_, err := w.producer.SendInTransaction(t.Context(), w.message(), func(tx *gorm.DB) error {
		_, err := w.producer.SendInTransaction(tx.Statement.Context, w.message(), pay)
		return err
	})
	r.check(t, err)
	must(t, w.proxy.WaitCount(t.Context(), remoting.EndTransaction, 1))
	if now := w.sent(); now != sent+2 {
		t.Errorf("%d requests, want the outer half and its end only", now-sent)
	}
	if now := w.written(t); !maps.Equal(now, written) {
		t.Errorf("rows are now %v, were %v", now, written)
	}
	w.counts(t, sent+2)
}

func TestSend(t *testing.T) {
	t.Parallel()
	rows := make([]row, 0, len(bad)+2)
	for _, b := range bad {
		rows = append(rows, row{name: b.name, fields: b.fields, call: func(t *testing.T, w *world) error {
			m := w.message()
			b.spoil(&m)
			_, err := w.sender.Send(t.Context(), m)
			return err
		}})
	}
	rows = append(rows,
		row{
			name: "delay level unknown", fields: []field{{"txmq.Message.DelayLevel", "19", "0 to 18"}},
			call: func(t *testing.T, w *world) error {
				m := w.message()
				m.DelayLevel = 19
				_, err := w.sender.Send(t.Context(), m)
				return err
			},
		},
		row{
			name: "unknown topic", is: []error{txmq.ErrRefused}, says: []string{`topic "absent-`, "does not exist", "create it"},
			call: func(t *testing.T, w *world) error {
				_, err := w.sender.Send(t.Context(), w.absent(t))
				return err
			},
		},
	)
	run(t, rows)
}

// absent is a message for a topic that does not exist, and, as on a broker with
// autoCreateTopicEnable=false, will not be made: nobody is told of the topic
// that new ones are copied from.
func (w *world) absent(t *testing.T) txmq.Message {
	t.Helper()
	f := w.proxy.Inject(wireproxy.Fault{
		Code: remoting.GetRouteInfoByTopic, Action: wireproxy.Answer, Response: remoting.ResTopicNotExist, Remark: "for a test",
		Match: func(f remoting.Frame) bool { return f.ExtFields["topic"] == "TBW102" },
	})
	t.Cleanup(f.Remove)
	m := w.message()
	m.Topic = "absent-" + w.topic
	return m
}
