package rocketmq

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// selector picks the queue: by the sharding key if there is one, else in turn,
// and on a retry another broker's. A message that is warming gets none.
type selector struct {
	byKey, inTurn producer.QueueSelector
	roster        roster
	warming       sync.Map // *primitive.Message -> *int, the number of queues
	trails        sync.Map // *primitive.Message -> *trail, of messages that may be tried again
}

var _ producer.QueueSelector = (*selector)(nil)

func newSelector() *selector {
	return &selector{
		byKey: producer.NewHashQueueSelector(), inTurn: producer.NewRoundRobinQueueSelector(),
		roster: roster{topics: map[string]known{}},
	}
}

// Select is called by the client, once per try.
func (s *selector) Select(msg *primitive.Message, queues []*primitive.MessageQueue, lastBroker string) *primitive.MessageQueue {
	if n, ok := s.warming.Load(msg); ok {
		if n, ok := n.(*int); ok {
			*n = len(queues)
		}
		return nil // the route is known now, and nothing is sent
	}
	way := new(trail)
	if t, ok := s.trails.Load(msg); ok {
		if t, ok := t.(*trail); ok {
			way = t
		}
	}
	// What is held keeps its key, for its topic of later; any broker will do.
	if msg.GetShardingKey() != "" && msg.Topic != HoldTopic {
		return way.first(s.byKey.Select(msg, s.roster.full(msg.Topic, queues), ""))
	}
	if last := way.queue(); last != nil {
		lastBroker = last.BrokerName
	}
	return way.next(s.inTurn.Select(msg, queues, lastBroker))
}

// trail is where the tries of one message went, each a message of the client's.
type trail struct {
	last atomic.Pointer[primitive.MessageQueue]
}

func (t *trail) queue() *primitive.MessageQueue { return t.last.Load() }

// first keeps the queue of the first try for all that follow.
func (t *trail) first(q *primitive.MessageQueue) *primitive.MessageQueue {
	t.last.CompareAndSwap(nil, q)
	return t.last.Load()
}

func (t *trail) next(q *primitive.MessageQueue) *primitive.MessageQueue {
	t.last.Store(q)
	return q
}

// roster remembers the queues of brokers that have left a topic's route. A name
// server drops a broker that restarts; with fewer queues to choose from, most
// keys would move, and what is sent next would be consumed before what lies in
// the queue that is away.
type roster struct {
	mu     sync.Mutex
	topics map[string]known
}

type known struct {
	route []*primitive.MessageQueue // as it was given last
	all   []*primitive.MessageQueue // and those of brokers that left
}

// full is now, and the queues of brokers that were seen before and left. A
// broker that is there counts with the queues that it has now.
func (r *roster) full(topic string, now []*primitive.MessageQueue) []*primitive.MessageQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.topics[topic]
	if len(now) == len(before.route) && len(now) > 0 && &now[0] == &before.route[0] {
		return before.all // the client gives the same slice until the route changes
	}
	here := map[string]bool{}
	for _, q := range now {
		here[q.BrokerName] = true
	}
	all := now
	for _, q := range before.all {
		if !here[q.BrokerName] {
			all = append(slices.Clip(all), q)
		}
	}
	if len(all) > len(now) { // in the client's order, so that each has its place again
		slices.SortStableFunc(all, func(a, b *primitive.MessageQueue) int { return strings.Compare(a.BrokerName, b.BrokerName) })
	}
	r.topics[topic] = known{route: now, all: all}
	return all
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
