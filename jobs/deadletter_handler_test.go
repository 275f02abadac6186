package jobs

import (
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/model"
)

// given is the row that a txmq consumer writes before it gives a message up.
func (l *letters) given(t *testing.T, m *primitive.MessageExt, handler string, eventID func(*primitive.MessageExt) string) {
	t.Helper()
	m.Topic = "order-paid"
	a, err := arrival.Of(m, handler, eventID)
	if err != nil {
		a.EventID = arrival.Place(arrival.MissingID, m)
	}
	f := model.Failure{Arrival: a, Dead: true, Err: errDeadLetter}
	if err == nil {
		err = l.Store.Fail(t.Context(), f)
	} else {
		err = l.Store.Bury(t.Context(), f)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeadLettersOfHandlersNotGiven(t *testing.T) {
	groups := func(g map[string]string) func(*Config) { return func(c *Config) { c.Groups = g } }
	t.Run("what a named handler has recorded gets no second row", func(t *testing.T) {
		each(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			byKey := func() *primitive.MessageExt {
				return dead("", "k", primitive.PropertyKeys, "k7", primitive.PropertyTags, "paid")
			}
			l.given(t, dead("e", "x"), "named", arrival.EventID)
			l.given(t, byKey(), "keyed", consumer.FromKey)
			l.given(t, byKey(), "tagged", consumer.FromKeyAndTag)
			l.given(t, dead("", "bare"), "named", arrival.EventID)
			before := l.all(t)
			l.put(t, dead("e", "x"))
			l.put(t, byKey())
			l.put(t, dead("", "bare"))
			l.want(t, before...)
			if l.events != nil {
				t.Errorf("events %+v", l.events)
			}
		})
	})
	t.Run("each event ID of the package is enough by itself", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t)
			for handler, f := range map[string]func(*primitive.MessageExt) string{"keyed": consumer.FromKey, "tagged": consumer.FromKeyAndTag} {
				m := func() *primitive.MessageExt {
					return dead("", handler, primitive.PropertyKeys, handler, primitive.PropertyTags, "paid")
				}
				l.given(t, m(), handler, f)
				before := l.all(t)
				l.put(t, m())
				l.want(t, before...)
			}
		})
	})
	t.Run("a record of another group, topic or body is not the message's", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t, groups(map[string]string{"theirs": "other"}))
			l.given(t, dead("e", "x"), "theirs", arrival.EventID)
			l.given(t, dead("e", "x"), "other:order-paid", arrival.EventID)
			l.given(t, dead("e", "another"), "named", arrival.EventID)
			l.put(t, dead("e", "x"))
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, "order-made"))
			l.want(t, "e of theirs: DEAD", "e of other:order-paid: DEAD", "e of named: DEAD",
				"e of shares:order-paid: DEAD", "e of shares:order-made: DEAD")
		})
	})
	t.Run("the group's only handler in Groups has it", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t, groups(map[string]string{"named": "shares", "theirs": "other"}))
			l.put(t, dead("e", "x"))
			l.put(t, dead("", "y"))
			l.want(t, "e of named: DEAD", "missing_id:MSG-:OFF- of named: DEAD")
			if r := found(t, l.Store, "e", "named"); r.Nameless() {
				t.Errorf("row is %+v, want one that can be retried", r)
			}
		})
	})
	t.Run("of several in Groups none is invented", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t, groups(map[string]string{"one": "shares", "two": "shares", "shares:order-made": "shares"}))
			for range 2 {
				l.put(t, dead("e", "x"))
			}
			l.put(t, dead("e", "x", primitive.PropertyRetryTopic, "order-made"))
			l.want(t, "no_handler:MSG-e:OFF-e of shares:order-paid: DEAD", "e of shares:order-made: DEAD")
			if r := found(t, l.Store, "no_handler:MSG-e:OFF-e", handler); !r.Nameless() || r.Position.Topic != "order-paid" {
				t.Errorf("row is %+v, want one that can't be retried", r)
			}
		})
	})
	t.Run("with Handlers given, a record under another name is another handler's", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *bundle) {
			l := b.letters(t, func(c *Config) {
				c.DeadLetters[0].Handlers = []consumer.Handler{{Topic: "order-paid", Name: "new"}}
			})
			l.given(t, dead("e", "x"), "old", arrival.EventID)
			l.put(t, dead("e", "x"))
			l.want(t, "e of old: DEAD", "e of new: DEAD")
		})
	})
}
