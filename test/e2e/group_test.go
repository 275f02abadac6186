package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/rocketmq"
)

func tagged(tags string) func(*consumer.Config) {
	return func(c *consumer.Config) { c.Handlers[0].Tags = tags }
}

// mismatch runs a consumer of the world's group that must not start.
func (w *world) mismatch(t *testing.T, says string, change ...func(*consumer.Config)) {
	t.Helper()
	c, err := consumer.New(w.config(new(events), change...))
	must(t, err)
	ctx, stop := context.WithTimeout(w.ctx, time.Minute)
	defer stop()
	if err := c.Run(ctx); !errors.Is(err, txmq.ErrSubscriptionMismatch) || !strings.Contains(err.Error(), says) {
		t.Errorf("Run = %v, want a mismatch that says %s", err, says)
	}
}

// live waits until the broker knows n members of the group that want expression.
func (w *world) live(t *testing.T, n int, expression string) (ids []string) {
	t.Helper()
	w.until(t, fmt.Sprintf("%d live members that want %s", n, expression), func() (bool, string) {
		groups, err := rocketmq.Subscriptions(w.ctx, w.broker(), w.group)
		if err != nil || len(groups) != 1 {
			return false, fmt.Sprint(groups, err)
		}
		ids = nil
		for _, c := range groups[0].Clients {
			ids = append(ids, c.ID)
		}
		return len(ids) == n && groups[0].Topics[w.topic].Expression == expression, fmt.Sprintf("%+v", groups)
	})
	return ids
}

func TestOneGroup(t *testing.T) {
	t.Parallel()
	t.Run("B49 two members of one process are two clients, and another tag is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.consumer(t, new(events), tagged("paid || created"))
		w.live(t, 1, "created || paid")
		w.mismatch(t, `this consumer wants "paid", they want "created || paid"`, tagged("paid"))
		w.mismatch(t, `this consumer wants "*", they want "created || paid"`)

		w.consumer(t, new(events), tagged("created||paid"))
		if ids := w.live(t, 2, "created || paid"); len(slices.Compact(ids)) != 2 {
			t.Errorf("clients = %v, want two", ids)
		}
		w.consumer(t, new(events), tagged("paid"), func(c *consumer.Config) { c.AllowResubscribe = true })
		w.live(t, 3, "paid")
	})
	t.Run("B49 a client that is not txmq's counts too", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		raw, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
			Broker: w.broker(), Group: w.group,
			Subscriptions: []rocketmq.Subscription{{Topic: w.topic, Tags: "old"}},
			Handle: func(context.Context, *primitive.MessageExt) rocketmq.Result {
				return rocketmq.Result{Kind: rocketmq.Ack}
			},
		})
		must(t, err)
		must(t, raw.Start(w.ctx))
		w.live(t, 1, "old")
		w.mismatch(t, `they want "old"`, tagged("new"))
		must(t, raw.Close(context.Background()))
		w.until(t, "the group without members", func() (bool, string) {
			groups, err := rocketmq.Subscriptions(w.ctx, w.broker(), w.group)
			return err == nil && len(groups) == 0, fmt.Sprint(groups, err)
		})
		w.consumer(t, new(events), tagged("new")) // the way out: the others are stopped
	})
}
