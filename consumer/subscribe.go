package consumer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/rocketmq"
)

// routes are the handlers by topic and tag.
type routes map[string]map[string]Handler

// newRoutes expects what Config.check has let pass.
func newRoutes(handlers []Handler) routes {
	all := routes{}
	for _, h := range handlers {
		if all[h.Topic] == nil {
			all[h.Topic] = map[string]Handler{}
		}
		tags, _ := arrival.ParseTags(h.Tags) // checked
		for _, tag := range tags {
			all[h.Topic][tag] = h
		}
	}
	return all
}

// of finds the handler of a message. There is none for a topic or a tag that
// only an older version of the group subscribed to.
func (r routes) of(m *primitive.MessageExt) (Handler, bool) {
	byTag := r[m.Topic]
	if h, ok := byTag[arrival.AllTags]; ok {
		return h, true
	}
	h, ok := byTag[m.GetTags()]
	return h, ok
}

// subscriptions is what the group asks the broker for: of each topic, by name,
// what its handlers want together.
func (r routes) subscriptions() []rocketmq.Subscription {
	list := make([]rocketmq.Subscription, 0, len(r))
	for topic, byTag := range r {
		list = append(list, rocketmq.Subscription{Topic: topic, Tags: strings.Join(tagsOf(byTag), " || ")})
	}
	slices.SortFunc(list, func(a, b rocketmq.Subscription) int { return strings.Compare(a.Topic, b.Topic) })
	return list
}

func tagsOf(byTag map[string]Handler) []string {
	tags := make([]string, 0, len(byTag))
	for tag := range byTag {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	return tags
}

// checkHandlers names the field of each mistake.
func (c Config) checkHandlers() (errs []error) {
	if len(c.Handlers) == 0 {
		errs = append(errs, &txmq.FieldError{Field: "consumer.Config.Handlers", Want: "at least one"})
	}
	names := map[string]int{}
	for i, h := range c.Handlers {
		bad := func(field string, value any, want string) {
			errs = append(errs, &txmq.FieldError{
				Field: fmt.Sprintf("consumer.Config.Handlers[%d].%s", i, field), Value: value, Want: want,
			})
		}
		errs = append(errs, rocketmq.CheckSubscribed(h.Topic, fmt.Sprintf("consumer.Config.Handlers[%d].Topic", i)))
		if first, ok := names[h.Name]; ok {
			bad("Name", h.Name, fmt.Sprintf("a name of its own, which Handlers[%d] has: one event ID would run in only one of the two", first))
		} else {
			names[h.Name] = i
		}
		if len(h.Name) > txmq.MaxEventIDBytes {
			bad("Name", h.Name, "at most 255 bytes")
		}
		if h.Do.fn == nil {
			bad("Do", nil, "consumer.Atomic(fn), consumer.Tracked(fn) or consumer.External(fn)")
		}
	}
	return append(errs, c.checkTags()...)
}

// checkTags also sees that each message has one handler.
func (c Config) checkTags() (errs []error) {
	lists := make([][]string, len(c.Handlers)) // nil where it can't be read
	for i, h := range c.Handlers {
		bad := func(want string) {
			errs = append(errs, &txmq.FieldError{
				Field: fmt.Sprintf("consumer.Config.Handlers[%d].Tags", i), Value: h.Tags, Want: want,
			})
		}
		var err error
		if lists[i], err = arrival.ParseTags(h.Tags); err != nil {
			bad(err.Error())
			continue
		}
		for j, other := range c.Handlers[:i] {
			if tag := common(lists[i], lists[j]); tag != "" && h.Topic != "" && h.Topic == other.Topic {
				bad(fmt.Sprintf("tags that no other handler of topic %s wants; Handlers[%d] (%s) wants %s too", h.Topic, j, other.Name, tag))
			}
		}
	}
	return errs
}

// common is a tag that both lists want, "" if there is none.
func common(a, b []string) string {
	for _, tag := range a {
		switch {
		case len(b) == 0:
			return ""
		case slices.Contains(b, tag), b[0] == arrival.AllTags:
			return tag
		case tag == arrival.AllTags:
			return b[0]
		}
	}
	return ""
}
