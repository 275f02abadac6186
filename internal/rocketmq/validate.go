package rocketmq

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

const (
	maxTopic = 127 // the broker keeps the length in a signed byte
	maxGroup = 120 // so that %RETRY% and the group fit into a topic

	// ownPropertyBytes is room for the properties that txmq adds besides the
	// event ID and the sharding key: attempt, database ID, born, re-drive,
	// traceparent, with their names and separators.
	ownPropertyBytes = 320
)

// CheckMessage reports every bad field of m, joined, each as a
// *txmq.FieldError. It does no I/O. An empty event ID is good: the producer
// makes one. A transactional message can't be delayed; old brokers would send
// such a half round in circles (Q17).
func CheckMessage(m txmq.Message, transactional bool) error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "txmq.Message." + field, Value: value, Want: want})
	}

	switch {
	case m.Topic == "":
		bad("Topic", nil, "1 to 127 letters, digits, _ - % |")
	case len(m.Topic) > maxTopic || !isName(m.Topic):
		bad("Topic", cut(m.Topic), "1 to 127 letters, digits, _ - % |")
	case isSystemTopic(m.Topic):
		bad("Topic", m.Topic, "a topic that is not RocketMQ's own")
	}
	switch {
	case len(m.EventID) > txmq.MaxEventIDBytes:
		bad("EventID", cut(m.EventID), fmt.Sprintf("at most %d bytes", txmq.MaxEventIDBytes))
	case !IsText(m.EventID):
		bad("EventID", m.EventID, "valid UTF-8 without control characters")
	}
	if !IsText(m.Tag) || strings.Contains(m.Tag, "||") || m.Tag != strings.Trim(m.Tag, " |") || m.Tag == "*" {
		bad("Tag", cut(m.Tag), "valid UTF-8 without control characters, without ||, with no space or | at its ends, not *")
	}
	for i, k := range m.Keys {
		if k == "" || !IsText(k) || strings.ContainsFunc(k, unicode.IsSpace) {
			bad(fmt.Sprintf("Keys[%d]", i), cut(k), "valid UTF-8 without spaces and control characters, not empty")
		}
	}
	if len(m.ShardingKey) > txmq.MaxEventIDBytes || !IsText(m.ShardingKey) {
		bad("ShardingKey", cut(m.ShardingKey), fmt.Sprintf("at most %d bytes, valid UTF-8 without control characters", txmq.MaxEventIDBytes))
	}
	switch {
	case len(m.Body) == 0:
		bad("Body", nil, fmt.Sprintf("1 to %d bytes", txmq.MaxBodyBytes))
	case len(m.Body) > txmq.MaxBodyBytes:
		bad("Body", byteCount(len(m.Body)), fmt.Sprintf("1 to %d bytes", txmq.MaxBodyBytes))
	}
	names := make([]string, 0, len(m.Properties))
	for name := range m.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if problem := checkProperty(name, m.Properties[name]); problem != "" {
			bad(fmt.Sprintf("Properties[%q]", cut(name)), byteCount(len(m.Properties[name])), problem)
		}
	}
	if n := propertyBytes(m); n > txmq.MaxPropertyBytes {
		bad("Properties", byteCount(n), fmt.Sprintf("at most %d bytes together with tag, keys and txmq's own", txmq.MaxPropertyBytes))
	}
	switch {
	case transactional && m.DelayLevel != 0:
		bad("DelayLevel", m.DelayLevel, "0: a transactional message can't be delayed")
	case m.DelayLevel < 0 || m.DelayLevel > MaxLevel:
		bad("DelayLevel", m.DelayLevel, fmt.Sprintf("0 to %d", MaxLevel))
	}
	return errors.Join(errs...)
}

// checkProperty says what a property should be like, or nothing if it is. The
// client writes properties as they are, with control characters between them:
// one inside a value forges other properties (Q16).
func checkProperty(name, value string) string {
	switch {
	case name == "" || !IsText(name):
		return "a name of valid UTF-8 without control characters, not empty"
	case isReserved(name):
		return "a name that is neither RocketMQ's nor txmq's"
	case value == "" || !IsText(value):
		return "a value of valid UTF-8 without control characters, not empty"
	default:
		return ""
	}
}

// checkOwn is for the properties that txmq adds.
func checkOwn(props map[string]string) error {
	var errs []error
	for name, value := range props {
		if name == "" || !IsText(name) || !IsText(value) {
			errs = append(errs, &txmq.FieldError{
				Field: fmt.Sprintf("property %q", cut(name)),
				Value: byteCount(len(value)), Want: "valid UTF-8 without control characters",
			})
		}
	}
	return errors.Join(errs...)
}

func propertyBytes(m txmq.Message) int {
	const separators = 2
	n := ownPropertyBytes +
		len(txmq.PropertyEventID) + max(len(m.EventID), len("00000000-0000-0000-0000-000000000000")) + separators
	add := func(name, value string) {
		if value != "" {
			n += len(name) + len(value) + separators
		}
	}
	add(txmq.PropertyShardingKey, m.ShardingKey)
	add(primitive.PropertyShardingKey, m.ShardingKey)
	add(primitive.PropertyTags, m.Tag)
	add(primitive.PropertyKeys, strings.Join(m.Keys, primitive.PropertyKeySeparator))
	for name, value := range m.Properties {
		add(name, value)
	}
	return n
}

// CheckBroker reports every bad field of b, joined, each as a
// *txmq.FieldError whose field starts with field. Never with the secret.
func CheckBroker(b txmq.Broker, field string) error {
	var errs []error
	const want = "ip:port of a name server; the client resolves no host names"
	if len(b.NameServers) == 0 {
		errs = append(errs, &txmq.FieldError{Field: field + ".NameServers", Want: want})
	}
	for i, ns := range b.NameServers {
		at, err := netip.ParseAddrPort(ns)
		if err != nil || at.Port() == 0 || primitive.NamesrvAddr([]string{ns}).Check() != nil {
			errs = append(errs, &txmq.FieldError{Field: fmt.Sprintf("%s.NameServers[%d]", field, i), Value: cut(ns), Want: want})
		}
	}
	switch {
	case b.AccessKey != "" && b.SecretKey == "":
		errs = append(errs, &txmq.FieldError{Field: field + ".SecretKey", Want: "both keys or neither"})
	case b.AccessKey == "" && b.SecretKey != "":
		errs = append(errs, &txmq.FieldError{Field: field + ".AccessKey", Want: "both keys or neither"})
	}
	return errors.Join(errs...)
}

// CheckGroup is a *txmq.FieldError if name is no name for a producer or
// consumer group. The longest is 120 bytes: the broker keeps a topic's length
// in 127, and the group has a retry topic.
func CheckGroup(name, field string) error {
	const want = "1 to 120 letters, digits, _ - % |"
	switch {
	case name == "":
		return &txmq.FieldError{Field: field, Want: want}
	case len(name) > maxGroup || !isName(name):
		return &txmq.FieldError{Field: field, Value: cut(name), Want: want}
	case isSystemGroup(name):
		return &txmq.FieldError{Field: field, Value: name, Want: "a group that is not RocketMQ's own"}
	default:
		return nil
	}
}

// checkTimeout refuses what is no time-out: below zero, or so short that a unit
// was forgotten. 0 is the default.
func checkTimeout(field string, d time.Duration) error {
	if d == 0 || d >= time.Millisecond {
		return nil
	}
	return &txmq.FieldError{Field: field, Value: d, Want: "1ms or more, or 0 for the default"}
}

// CheckSubscribed refuses what is no topic, and a retry topic, which the client
// subscribes to by itself. field names it.
func CheckSubscribed(topic, field string) error {
	const want = "1 to 127 letters, digits, _ - % |, no retry topic"
	switch {
	case topic == "":
		return &txmq.FieldError{Field: field, Want: want}
	case len(topic) > maxTopic || !isName(topic) || strings.HasPrefix(topic, retryPrefix):
		return &txmq.FieldError{Field: field, Value: cut(topic), Want: want}
	}
	return nil
}

// isName is the broker's rule for topics and groups.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return s != ""
}

// IsText says whether s may stand in a message's properties: valid UTF-8
// without control characters, of which the client makes its separators (Q16).
func IsText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// cut keeps an error readable whatever was put into the field.
func cut(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

// byteCount stands for what must not be shown.
type byteCount int

// String is the size.
func (n byteCount) String() string { return fmt.Sprintf("%d bytes", int(n)) }
