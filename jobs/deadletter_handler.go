package jobs

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/model"
)

// handlerOf is the group's handler of a message. given: Handlers has it, so that
// its name and event ID are certain. Without a name there is no telling which of
// several it is.
func (in intake) handlerOf(m *primitive.MessageExt) (h consumer.Handler, given bool) {
	for _, h := range in.Handlers {
		if h.Topic == m.Topic && wants(h.Tags, m.GetTags()) {
			return h, true
		}
	}
	return consumer.Handler{Topic: m.Topic, Name: in.nameOf(m.Topic), EventID: arrival.EventID}, false
}

// nameOf is Groups the other way round.
func (in intake) nameOf(topic string) string {
	byDefault := in.Group + ":" + topic
	if len(in.Handlers) > 0 || in.Groups[byDefault] == in.Group {
		return byDefault
	}
	var names []string
	for name, group := range in.Groups {
		if group == in.Group {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return byDefault
	case 1:
		return names[0]
	default:
		return ""
	}
}

// recorded: a handler of the topic has a record of the message, under the event
// ID that one of the package's functions gives, or that the consumer makes. A
// handler counts unless it is known to be another group's. Each look is one at
// uk_event_consumer.
func (in intake) recorded(ctx context.Context, m *primitive.MessageExt) (bool, error) {
	hash := sha256.Sum256(m.Body)
	for _, id := range []string{
		arrival.EventID(m), consumer.FromKey(m), consumer.FromKeyAndTag(m),
		arrival.Place(arrival.MissingID, m), arrival.Place(arrival.PayloadMismatch, m),
	} {
		if id == "" { // which would not restrict the list
			continue
		}
		list, err := in.Store.Records(ctx, model.Filter{EventID: id, Limit: 1000})
		if err != nil {
			return false, err
		}
		for _, r := range list {
			if in.mayBe(r, m.Topic) && !differs(r.Arrival().PayloadHash, hash) {
				return true, nil
			}
		}
	}
	return false, nil
}

// mayBe: the record may be of a handler of this group and topic. Those in
// Handlers do not want the message, and an adopted one does not know its topic.
func (in intake) mayBe(r model.ConsumeRecord, topic string) bool {
	if slices.ContainsFunc(in.Handlers, func(h consumer.Handler) bool { return h.Name == r.Consumer }) {
		return false
	}
	group, known := in.groupOf(r)
	return (r.Position.Topic == topic || r.Position.Topic == "") && (!known || group == in.Group)
}

// wants tells whether a handler's Tags take a message of that tag.
func wants(tags, tag string) bool {
	list, _ := arrival.ParseTags(tags) // checked
	return slices.Contains(list, arrival.AllTags) || slices.Contains(list, tag)
}
