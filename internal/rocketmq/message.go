package rocketmq

import (
	"bytes"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

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

// selector picks the queue: by the sharding key if there is one, else in turn,
// and on a retry another broker's. A message that is warming gets none.
type selector struct {
	byKey, inTurn producer.QueueSelector
	warming       sync.Map // *primitive.Message -> *int, the number of queues
}

var _ producer.QueueSelector = (*selector)(nil)

func newSelector() *selector {
	return &selector{byKey: producer.NewHashQueueSelector(), inTurn: producer.NewRoundRobinQueueSelector()}
}

// Select is called by the client, once per try.
func (s *selector) Select(msg *primitive.Message, queues []*primitive.MessageQueue, lastBroker string) *primitive.MessageQueue {
	if n, ok := s.warming.Load(msg); ok {
		if n, ok := n.(*int); ok {
			*n = len(queues)
		}
		return nil // the route is known now, and nothing is sent
	}
	if msg.GetShardingKey() != "" {
		return s.byKey.Select(msg, queues, lastBroker)
	}
	return s.inTurn.Select(msg, queues, lastBroker)
}

// warm has send load the topic's route without sending anything (Q04), and says
// whether there is one.
func (s *selector) warm(topic string, send func(*primitive.Message)) bool {
	msg := primitive.NewMessage(topic, nil)
	n := 0
	s.warming.Store(msg, &n)
	defer s.warming.Delete(msg)
	send(msg)
	return n > 0
}
