package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	clientproducer "github.com/apache/rocketmq-client-go/v2/producer"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/producer"
)

// TestACL has every component at work on brokers that ask for a signature, and
// wants a wrong one to be an error at once.
func TestACL(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.9.7", "5.5.0"} {
		on := func(name string, test func(*testing.T, *world)) {
			t.Run(name+" on "+version, func(t *testing.T) {
				t.Parallel()
				g := testenv.ACL(t, version)
				test(t, newWorldBehind(t, remoting.Keys{AccessKey: g.AdminKey, SecretKey: txmq.Secret(g.AdminSecret)}, g.NameServer, g.Broker))
			})
		}
		on("producer and consumer", func(t *testing.T, w *world) {
			w.mainJob(t)
			w.refused(t)
		})
		on("sender, intake and redrive", func(t *testing.T, w *world) { w.guardedRedrive(t) })
		on("listener", func(t *testing.T, w *world) { w.guardedListener(t) })
	}
}

// guardedRedrive takes a plain message through the dead-letter queue and back.
func (w *world) guardedRedrive(t *testing.T) {
	t.Helper()
	s, err := producer.NewSender(producer.SenderConfig{Broker: w.broker(), Group: w.senders})
	must(t, err)
	must(t, s.Start(w.ctx))
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	_, err = s.Send(w.ctx, w.message("a"))
	must(t, err)
	w.raw(t, 1, func(context.Context, *primitive.MessageExt) rocketmq.Result {
		return rocketmq.Result{Kind: rocketmq.DeadLetter}
	})
	w.until(t, "the dead-letter queue has it", func() (bool, string) { return w.stored(t, "%DLQ%"+w.group) == 1, "" })

	seen := new(events)
	r := w.jobs(t, seen, w.takesIn)
	w.running(t, r)
	w.consumer(t, seen)
	must(t, w.store.Retry(w.ctx, w.dead(t, "a"), ann))
	if n := w.tick(t, r); n != 1 {
		t.Errorf("tick redrove %d, want 1", n)
	}
	w.ended(t, seen, "a", txmq.OutcomeDone)
	if all := of[txmq.Redriven](seen); len(all) != 1 || all[0].Way != txmq.RedriveSendBack || all[0].Err != nil {
		t.Errorf("events %+v, want one that was sent back", all)
	}
}

// guardedListener sends by the client's own producer; the end of "checked" is lost.
func (w *world) guardedListener(t *testing.T) {
	t.Helper()
	l, err := checker.NewListener(checker.Config{
		Store: w.store, FenceAfter: time.Second, Interval: time.Second,
	}, func(tx *gorm.DB, m *primitive.Message) error { return w.order(m.GetProperty(txmq.PropertyEventID))(tx) })
	must(t, err)
	p, err := client.NewTransactionProducer(losesEnd{l},
		clientproducer.WithNsResolver(primitive.NewPassthroughResolver([]string{w.ns})), clientproducer.WithGroupName(w.senders),
		clientproducer.WithCredentials(primitive.Credentials{AccessKey: w.keys.AccessKey, SecretKey: string(w.keys.SecretKey)}),
		clientproducer.WithInstanceName("half-"+w.topic), clientproducer.WithRetry(0), clientproducer.WithSendMsgTimeout(10*time.Second))
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() { must(t, errors.Join(l.Close(context.Background()), p.Shutdown())) })
	w.consumer(t, new(events))
	for _, event := range []string{"committed", "checked"} {
		m := primitive.NewMessage(w.topic, []byte("{}"))
		must(t, l.Stamp(m, event))
		_, err := p.SendMessageInTransaction(w.ctx, m)
		must(t, err)
	}
	w.settled(t, "committed", "checked")
}

// losesEnd leaves the event "checked" to its check-back.
type losesEnd struct{ *checker.Listener }

func (l losesEnd) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	state := l.Listener.ExecuteLocalTransaction(m)
	if m.GetProperty(txmq.PropertyEventID) == "checked" {
		return primitive.UnkonwnState
	}
	return state
}

// refused starts each component with keys that are not the broker's.
func (w *world) refused(t *testing.T) {
	t.Helper()
	w.keys.SecretKey = "no-secret-of-the-broker"
	p, err := producer.New(producer.Config{Store: w.store, Broker: w.broker(), Group: w.senders, Topics: []string{w.topic}})
	must(t, err)
	c, err := consumer.New(consumer.Config{
		Store: w.store, Broker: w.broker(), Group: w.group,
		Handlers: []consumer.Handler{{Topic: w.topic, Name: w.handler, Do: consumer.Atomic(w.share)}},
	})
	must(t, err)
	s, err := producer.NewSender(producer.SenderConfig{Broker: w.broker(), Group: w.senders})
	must(t, err)
	must(t, s.Start(w.ctx)) // name servers ask for no signature
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	send := func(ctx context.Context) error {
		_, err := s.Send(ctx, w.message("refused"))
		return err
	}
	for what, start := range map[string]func(context.Context) error{"producer.Start": p.Start, "consumer.Run": c.Run, "Sender.Send": send} {
		err := start(w.ctx)
		wantError(t, err, txmq.ErrRefused)
		if err != nil && (!strings.Contains(err.Error(), "ignature failed") || strings.Contains(err.Error(), "no-secret")) {
			t.Errorf("%s = %v, want the broker's words and no secret", what, err)
		}
	}
}
