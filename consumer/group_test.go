package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

func TestSubscriptionsOfTheGroup(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	all := func(topics ...string) map[string]rocketmq.Filter {
		m := map[string]rocketmq.Filter{}
		for _, topic := range topics {
			m[topic] = rocketmq.Filter{Type: "TAG", Expression: "*"}
		}
		return m
	}
	tags := func(expression string, tags ...string) map[string]rocketmq.Filter {
		return map[string]rocketmq.Filter{"order": {Type: "TAG", Expression: expression, Tags: tags}}
	}
	for name, c := range map[string]struct {
		handlers string // the tags of one handler of topic order
		live     rocketmq.LiveGroup
		says     []string // nil: they agree
	}{
		"the same tags in another order": {"a || b", rocketmq.LiveGroup{Topics: tags("b||a", "b", "a")}, nil},
		"all":                            {"", rocketmq.LiveGroup{Topics: all("order")}, nil},
		"a tag less":                     {"a || b", rocketmq.LiveGroup{Topics: tags("a", "a")}, []string{`of topic order this consumer wants "a || b", they want "a" (clients one@1, two@2)`}},
		"all, and one tag":               {"a", rocketmq.LiveGroup{Topics: all("order")}, []string{`wants "a", they want "*"`}},
		"a topic more":                   {"*", rocketmq.LiveGroup{Topics: all("order", "user")}, []string{`of topic user this consumer wants nothing, they want "*"`}},
		"another topic":                  {"*", rocketmq.LiveGroup{Topics: all("user")}, []string{"of topic order", "of topic user"}},
		"SQL92":                          {"*", rocketmq.LiveGroup{Topics: map[string]rocketmq.Filter{"order": {Type: "SQL92", Expression: "a > 5"}}}, []string{`they want SQL92 "a > 5"`}},
		"broadcasting":                   {"*", rocketmq.LiveGroup{Topics: all("order"), Broadcasting: true}, []string{"they are broadcasting (clients one@1"}},
		"pulling":                        {"*", rocketmq.LiveGroup{Topics: all("order"), Pull: true}, []string{"they pull for themselves"}},
	} {
		c.live.Clients = []rocketmq.LiveClient{{ID: "one@1"}, {ID: "two@2"}}
		start := func(t *testing.T, change ...func(*Config)) error {
			t.Helper()
			cons := b.consumer(t, Atomic(pay), append(change, func(cfg *Config) {
				cfg.Handlers[0].Topic, cfg.Handlers[0].Tags = "order", c.handlers
			})...)
			ctx, stop := context.WithCancel(t.Context())
			cons.source = &stub{onRun: func(context.Context) { stop() }}
			cons.members = func(context.Context) ([]rocketmq.LiveGroup, error) {
				return []rocketmq.LiveGroup{c.live, c.live}, errors.New("one broker is away")
			}
			return cons.Run(ctx)
		}
		t.Run(name, func(t *testing.T) {
			err := start(t)
			if c.says == nil {
				if err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
				return
			}
			if !errors.Is(err, txmq.ErrSubscriptionMismatch) || !strings.Contains(err.Error(), "AllowResubscribe") || strings.Count(err.Error(), c.says[0]) != 1 {
				t.Errorf("Run = %v, want the mismatch told once, with the way out", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("Run = %v, want %q in it", err, s)
				}
			}
			if ids := b.open(t); len(ids) != 0 {
				t.Errorf("open runs = %v, want none: it has not begun", ids)
			}
			if err := start(t, func(c *Config) { c.AllowResubscribe = true }); err != nil || !strings.Contains(b.log(), "have another subscription") {
				t.Errorf("Run with AllowResubscribe = %v, want nil and a line in the log", err)
			}
		})
	}
}
