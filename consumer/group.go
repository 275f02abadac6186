package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/rocketmq"
)

// askWithin bounds the look at the group's live members.
const askWithin = 10 * time.Second

// agree looks whether the group's live members subscribe to what this consumer
// will. RocketMQ keeps one subscription a group, that of the last heart-beat, so
// members that differ take messages from one another, without a word.
//
// A broker that does not say is no reason not to start: Start has its own word on
// brokers that are away.
func (c *Consumer) agree(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	live, err := c.members(ctx)
	if err != nil {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "live members of the group are not all known, their subscriptions may differ",
			slog.String("group", c.cfg.Group), slog.Any("error", err))
	}
	var differs []string
	for _, g := range live {
		for _, d := range differences(c.routes, g) {
			if !slices.Contains(differs, d) {
				differs = append(differs, d)
			}
		}
	}
	if differs == nil {
		return nil
	}
	if c.cfg.AllowResubscribe {
		c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "live members of the group have another subscription",
			slog.String("group", c.cfg.Group), slog.String("differs", strings.Join(differs, "; ")))
		return nil
	}
	return fmt.Errorf("%w: group %s: %s: stop the others first, or use another group, or set Config.AllowResubscribe for a roll-out that changes it",
		txmq.ErrSubscriptionMismatch, c.cfg.Group, strings.Join(differs, "; "))
}

// differences tells what a broker's live members of the group do otherwise.
func differences(ours routes, g rocketmq.LiveGroup) (list []string) {
	ids := make([]string, len(g.Clients))
	for i, m := range g.Clients {
		ids[i] = m.ID
	}
	clients := " (clients " + strings.Join(ids, ", ") + ")"
	switch {
	case g.Broadcasting:
		return []string{"they are broadcasting" + clients}
	case g.Pull:
		return []string{"they pull for themselves" + clients}
	}
	topics := slices.Collect(maps.Keys(ours))
	for topic := range g.Topics {
		if _, ok := ours[topic]; !ok {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	for _, topic := range topics {
		mine, other := "nothing", "nothing"
		if byTag, ok := ours[topic]; ok {
			mine = quoted(tagsOf(byTag))
		}
		if f, ok := g.Topics[topic]; ok {
			other = wants(f)
		}
		if mine != other {
			list = append(list, fmt.Sprintf("of topic %s this consumer wants %s, they want %s%s", topic, mine, other, clients))
		}
	}
	return list
}

func wants(f rocketmq.Filter) string {
	switch {
	case f.Type != "TAG":
		return fmt.Sprintf("%s %q", f.Type, f.Expression)
	case len(f.Tags) == 0:
		return quoted([]string{arrival.AllTags})
	default:
		return quoted(slices.Sorted(slices.Values(f.Tags)))
	}
}

func quoted(tags []string) string { return fmt.Sprintf("%q", strings.Join(tags, " || ")) }
