package rocketmq

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

func TestHalves(t *testing.T) {
	t.Parallel()

	t.Run("B07 delayed replies make more halves, and one run", func(t *testing.T) {
		b := setup(t)
		asked, check := askedFor()
		p := startTx(t, TxConfig{
			Broker: at(b.proxy.NameServer()), Group: b.group, Topics: []string{b.topic},
			Retries: 2, SendTimeout: time.Second, Check: check,
		})
		late := b.proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.DelayReply, Count: 2})
		ran := 0
		r, err := p.SendHalf(t.Context(), message(b.topic, "e"), map[string]string{txmq.PropertyAttempt: "a"}, func(Half) txmq.Verdict {
			ran++
			return txmq.Commit
		})
		if err != nil || ran != 1 || !r.Ended {
			t.Errorf("SendHalf = %+v, %v after %d runs; want 1", r, err, ran)
		}
		late.Remove()
		if n := b.proxy.Count(remoting.SendMessage); n != 3 {
			t.Errorf("%d sends, want 3", n)
		}
		for range 2 {
			receive(t, asked, "check of a half without end")
		}
		ids := make(chan string, 100)
		b.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			ids <- m.MsgId + m.GetProperty(txmq.PropertyAttempt)
			return Result{Kind: Ack}
		})
		for range 3 {
			if id := receive(t, ids, "copy"); id != r.Half.MsgID+"a" {
				t.Errorf("copy %s, want %sa: the same id and attempt", id, r.Half.MsgID)
			}
		}
	})

	t.Run("B07 without retries there is one half, and an error", func(t *testing.T) {
		b := setup(t)
		p := startTx(t, TxConfig{Broker: at(b.proxy.NameServer()), Group: b.group, Topics: []string{b.topic}, SendTimeout: 300 * time.Millisecond})
		b.proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.LoseReply, Count: 1})
		r, err := p.SendHalf(t.Context(), message(b.topic, "e"), nil, never(t))
		if !errors.Is(err, txmq.ErrBrokerUnreachable) || r.Ran {
			t.Errorf("SendHalf = %+v, %v; want ErrBrokerUnreachable", r, err)
		}
		if n := b.proxy.Count(remoting.SendMessage); n != 1 {
			t.Errorf("%d sends, want 1", n)
		}
	})

	t.Run("B08 a cancelled context sends nothing and disturbs nobody", func(t *testing.T) {
		b := setup(t)
		p := startTx(t, TxConfig{Broker: at(b.proxy.NameServer()), Group: b.group, Topics: []string{b.topic}, Retries: 3})
		held := make(chan struct{})
		slow := b.proxy.Inject(wireproxy.Fault{Code: remoting.SendMessage, Action: wireproxy.DelayReply, Count: 1, Until: held})
		parallel := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.SendHalf(t.Context(), message(b.topic, "parallel"), nil, func(Half) txmq.Verdict { return txmq.Commit })
			parallel <- err
		})
		if err := slow.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		conns := b.proxy.Conns()[b.broker]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		for _, ctx := range []context.Context{ctx, expired} {
			if r, err := p.SendHalf(ctx, message(b.topic, "e"), nil, never(t)); !errors.Is(err, ctx.Err()) || r.Ran {
				t.Errorf("SendHalf = %+v, %v; want %v", r, err, ctx.Err())
			}
		}
		if n := b.proxy.Count(remoting.SendMessage); n != 1 {
			t.Errorf("%d sends, want the parallel one only", n)
		}
		if got := b.proxy.Conns()[b.broker]; got != conns {
			t.Errorf("%d connections, want %d as before", got, conns)
		}
		close(held)
		if err := receive(t, parallel, "parallel send"); err != nil {
			t.Errorf("parallel SendHalf = %v", err)
		}
		wg.Wait()
	})

	t.Run("B16 a failed start harms no other producer of the group", func(t *testing.T) {
		b := setup(t)
		healthy := startTx(t, TxConfig{Broker: at(b.ns), Group: b.group, Topics: []string{b.topic}})
		failing := newTx(t, TxConfig{Broker: at("127.0.0.1:1"), Group: b.group, Topics: []string{b.topic}})
		if err := failing.Start(t.Context()); !errors.Is(err, txmq.ErrBrokerUnreachable) {
			t.Errorf("Start = %v, want ErrBrokerUnreachable", err)
		}
		if err := failing.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		second := startTx(t, TxConfig{Broker: at(b.ns), Group: b.group, Topics: []string{b.topic}})
		if err := second.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		if r, err := healthy.SendHalf(t.Context(), message(b.topic, "e"), nil, func(Half) txmq.Verdict { return txmq.Commit }); err != nil || !r.Ended {
			t.Errorf("SendHalf = %+v, %v", r, err)
		}
	})
}
