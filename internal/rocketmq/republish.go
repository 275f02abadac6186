package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// HoldTopic is where Republish puts messages from which the broker makes one
// group's copy. Nobody consumes it.
const HoldTopic = "TXMQ_HOLD"

// RepublishRequest is a message that the broker no longer has, as a row keeps
// it, and the group that is to get it again.
type RepublishRequest struct {
	// Group is the consumer group. Required.
	Group string

	// Topic is the original one, under which the message is delivered. Required.
	Topic string

	// Body is the message's, not compressed.
	Body []byte

	// Properties are all that the message had when it was delivered. Tags, keys,
	// sharding key, the client's ID, txmq's and the user's own are kept; what
	// RocketMQ adds by itself is left out.
	Properties map[string]string

	// Born is written as TXMQ_BORN where Properties have none. Zero: it is not.
	Born time.Time

	// DelayLevel is 1 to 18. Default 1, one second.
	DelayLevel int
}

func (r RepublishRequest) validate() error {
	errs := []error{
		CheckGroup(r.Group, "RepublishRequest.Group"),
		checkTopic(r.Topic, "RepublishRequest.Topic"),
		checkLevel(r.DelayLevel, "RepublishRequest.DelayLevel"),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
		value := r.Properties[name]
		if strings.ContainsAny(name+value, "\x01\x02") { // what lies between properties on the wire
			errs = append(errs, &txmq.FieldError{
				Field: fmt.Sprintf("RepublishRequest.Properties[%q]", cut(name)),
				Value: byteCount(len(value)), Want: "no control character 1 or 2",
			})
		}
	}
	return errors.Join(errs...)
}

// keptProperties are those of RocketMQ's that are the producer's doing.
var keptProperties = set(
	primitive.PropertyTags, primitive.PropertyKeys, primitive.PropertyShardingKey,
	primitive.PropertyUniqueClientMessageIdKeyIndex,
)

// message is what goes to the holding topic. The property RETRY_TOPIC makes the
// broker and the client take the copy for one of the original topic.
func (r RepublishRequest) message() *primitive.Message {
	m := primitive.NewMessage(HoldTopic, bytes.Clone(r.Body))
	for name, value := range r.Properties {
		if keptProperties[name] || strings.HasPrefix(name, ownPrefix) || !isReserved(name) {
			m.WithProperty(name, value)
		}
	}
	if m.GetProperty(txmq.PropertyBorn) == "" && !r.Born.IsZero() {
		m.WithProperty(txmq.PropertyBorn, strconv.FormatInt(r.Born.UnixMilli(), 10))
	}
	m.WithProperty(txmq.PropertyRedrive, r.Group)
	m.WithProperty(primitive.PropertyRetryTopic, r.Topic)
	return m
}

// Republish gives one group, and no other, a message again that the broker has
// deleted: it stores the message in HoldTopic, which it makes when absent (one
// queue on each broker), and then does what SendBack does. It returns where the
// message lies now; after an error of the second step that is not empty, and
// SendBack does the rest, as it does for the next time.
//
// Errors are those of Send and SendBack, and of a broker that refuses to make
// the topic.
func (s *Sender) Republish(ctx context.Context, r RepublishRequest) (Sent, error) {
	if err := ctx.Err(); err != nil {
		return Sent{}, err
	}
	if err := r.validate(); err != nil {
		return Sent{}, err
	}
	if err := s.makeHoldTopic(ctx); err != nil {
		return Sent{}, err
	}
	m := r.message()
	sent, err := s.put(ctx, m)
	if err != nil && (!errors.Is(err, txmq.ErrNotDurable) || sent.OffsetMsgID == "") { // what is stored can be sent back
		return Sent{}, err
	}
	return sent, SendBack(ctx, s.cfg.Broker, SendBackRequest{
		Group: r.Group, Topic: r.Topic, DelayLevel: r.DelayLevel,
		OffsetMsgID: sent.OffsetMsgID, BrokerName: sent.BrokerName, MsgID: sent.MsgID,
	})
}

func (s *Sender) makeHoldTopic(ctx context.Context) error {
	if _, err := brokersOf(ctx, s.cfg.Broker, HoldTopic); !errors.Is(err, txmq.ErrRefused) {
		return err
	}
	masters, err := mastersOf(ctx, s.cfg.Broker)
	if err != nil {
		return err
	}
	if err := makeTopic(ctx, s.cfg.Broker, HoldTopic, masters); err != nil {
		return fmt.Errorf("topic %s can't be made; have an administrator make it: %w", HoldTopic, err)
	}
	return nil
}
