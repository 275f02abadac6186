package rocketmq

import (
	"context"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// TestNamespace: names with an instance's prefix, put there by the user, are
// names as any other, all the way.
func TestNamespace(t *testing.T) {
	t.Parallel()
	onVersions(t, "instance%name", func(t *testing.T, b bundle) {
		const instance = "MQ_INST_7_x%"
		b.topic, b.group = instance+b.topic, instance+b.group
		b.makeTopic(t, b.topic)
		asked := make(chan *primitive.MessageExt, 10)
		p := startTx(t, TxConfig{
			Broker: at(b.ns), Group: instance + "p-" + b.topic[len(instance):], Topics: []string{b.topic},
			Check: func(_ context.Context, m *primitive.MessageExt) txmq.Verdict {
				asked <- m
				return txmq.Commit
			},
		})
		r, err := p.SendHalf(t.Context(), message(b.topic, "e"), nil, unknown)
		if err != nil || r.Half.Topic != b.topic {
			t.Fatalf("SendHalf = %+v, %v", r, err)
		}
		if m := receive(t, asked, "check"); event(m) != "e" || m.Topic != b.topic {
			t.Errorf("asked about %s of %s, want the name as it was given", event(m), m.Topic)
		}
		seen := make(chan *primitive.MessageExt, 10)
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- m
			if m.ReconsumeTimes == 0 {
				return Result{}
			}
			return Result{Kind: Ack}
		})
		for m := receive(t, seen, "delivery"); ; m = receive(t, seen, "delivery") {
			if m.Topic != b.topic {
				t.Errorf("delivered under %s, want %s", m.Topic, b.topic)
			}
			if m.ReconsumeTimes == 0 {
				continue
			}
			b.sendBack(t, SendBackRequest{Group: b.group, Topic: b.topic, OffsetMsgID: m.OffsetMsgId, MsgID: m.MsgId})
			break
		}
		if m := receive(t, seen, "copy"); m.Topic != b.topic || m.ReconsumeTimes != 2 {
			t.Errorf("copy of %s with count %d, want %s with 2", m.Topic, m.ReconsumeTimes, b.topic)
		}
		live, err := Subscriptions(t.Context(), at(b.ns), b.group)
		if err != nil || len(live) != 1 || live[0].Topics[b.topic].Expression != "*" {
			t.Errorf("Subscriptions = %+v, %v; want %s", live, err, b.topic)
		}
	})
}
