package e2e

import (
	"context"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/producer"
)

// TestSender: a plain message whose answers are lost is stored more than once,
// and consumed once.
func TestSender(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, seen := w.observer(t), new(events)
	w.consumer(t, seen)
	proxy := w.proxy(t)
	s, err := producer.NewSender(producer.SenderConfig{
		Broker: txmq.Broker{NameServers: []string{proxy.NameServer()}}, Group: w.senders, Retries: 10,
	})
	must(t, err)
	must(t, s.Start(w.ctx))
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	lost := proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.LoseReply, Count: 2})
	m := w.message("")
	m.ShardingKey = "order-1"
	placed, err := s.Send(w.ctx, m)
	must(t, err)
	must(t, lost.Wait(w.ctx, 2))
	w.visible(t, o, placed.EventID, 3)
	one(t, w, seen, "the effect", func(d txmq.Delivered) bool {
		return d.EventID == placed.EventID && d.Outcome == txmq.OutcomeDone
	})
	w.until(t, "two duplicates", func() (bool, string) {
		n := 0
		for _, d := range of[txmq.Delivered](seen) {
			if d.EventID == placed.EventID && d.Outcome == txmq.OutcomeDuplicate {
				n++
			}
		}
		return n >= 2, ""
	})
	if n := w.number(t, "SELECT COUNT(*) FROM e2e_share WHERE event = ?", placed.EventID); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}
