package txmq

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a string that prints as "[secret]" whatever the verb, also inside
// a struct, in JSON and in slog.
type Secret string

const redacted = "[secret]"

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// Format hides the value from every verb.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = s.GoString()
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText hides the value from JSON, YAML and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Broker says how to reach RocketMQ. Each component makes connections of its
// own from it, so one value serves any number of them.
//
// There is no switch for TLS: the client's encrypts towards anybody, because it
// verifies no certificate, and is on or off for the whole process. There is no
// namespace either: the client would put it before the topic at each send again.
// Write an instance's prefix into the names yourself, as "MQ_INST_1%orders";
// topics and groups may hold "%".
type Broker struct {
	// NameServers are "ip:port" each. Required. The client resolves no host
	// names of its own.
	NameServers []string

	// AccessKey and SecretKey sign requests where the broker has ACL on.
	// Both or neither. What the broker refuses is ErrRefused, at the start of a
	// producer or a consumer already.
	AccessKey string
	SecretKey Secret
}
