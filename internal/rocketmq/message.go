package rocketmq

import (
	"bytes"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// newMessage makes the client's message, new for each send (Q15) and sharing
// nothing with the caller's, who may change his while the client still tries.
func newMessage(m txmq.Message, props map[string]string) *primitive.Message {
	msg := primitive.NewMessage(m.Topic, bytes.Clone(m.Body))
	for k, v := range m.Properties {
		msg.WithProperty(k, v)
	}
	msg.WithProperty(txmq.PropertyEventID, m.EventID) // an empty value sets nothing
	msg.WithProperty(txmq.PropertyShardingKey, m.ShardingKey)
	for k, v := range props {
		msg.WithProperty(k, v)
	}
	msg.WithTag(m.Tag)
	msg.WithKeys(m.Keys)
	msg.WithShardingKey(m.ShardingKey)
	if m.DelayLevel > 0 {
		msg.WithDelayTimeLevel(m.DelayLevel)
	}
	return msg
}
