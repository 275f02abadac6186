package remoting

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the broker's protocol knows no other digest
	"encoding/base64"
	"io"
	"maps"
	"slices"

	"github.com/txmq/txmq"
)

// Names of the fields that a signature adds to a request.
const (
	fieldAccessKey = "AccessKey"
	fieldSignature = "Signature"
)

// Keys sign requests where broker or name server has ACL on. The zero value
// signs nothing; the package's functions are the zero value's methods.
type Keys struct {
	AccessKey string
	SecretKey txmq.Secret
}

// KeysOf are the broker's, none where it has none.
func KeysOf(b txmq.Broker) Keys { return Keys{AccessKey: b.AccessKey, SecretKey: b.SecretKey} }

// Sign returns f with access key and signature in its fields; f's own map is
// left alone. A signature that f has is replaced. What is signed: the values of
// the fields, access key included, in the byte order of their names, then the
// body. Nothing lies between the values, so a signature vouches for the text,
// not for where one value ends.
func (k Keys) Sign(f Frame) Frame {
	if k.AccessKey == "" {
		return f
	}
	fields := make(map[string]string, len(f.ExtFields)+2)
	maps.Copy(fields, f.ExtFields)
	delete(fields, fieldSignature)
	fields[fieldAccessKey] = k.AccessKey
	mac := hmac.New(sha1.New, []byte(k.SecretKey))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		_, _ = io.WriteString(mac, fields[name]) // a hash takes everything
	}
	_, _ = mac.Write(f.Body)
	fields[fieldSignature] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	f.ExtFields = fields
	return f
}

// Call is Keys.Call without a signature.
func Call(ctx context.Context, addr string, req Frame) (Frame, error) {
	return Keys{}.Call(ctx, addr, req)
}

// Brokers is Keys.Brokers without a signature.
func Brokers(ctx context.Context, nameServer, topic string) ([]BrokerAddr, error) {
	return Keys{}.Brokers(ctx, nameServer, topic)
}

// CreateTopic is Keys.CreateTopic without a signature.
func CreateTopic(ctx context.Context, brokerAddr, topic string, queues, perm int) error {
	return Keys{}.CreateTopic(ctx, brokerAddr, topic, queues, perm)
}
