package jobs

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	client "github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
)

// said is a logger that tells when a message was written.
type said struct {
	slog.Handler
	text  string
	heard chan slog.Level
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }

func (s *said) Handle(_ context.Context, r slog.Record) error {
	if r.Message == s.text {
		select {
		case s.heard <- r.Level:
		default:
		}
	}
	return nil
}

func (s *said) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s *said) WithGroup(string) slog.Handler      { return s }

func TestQueueThatComesLate(t *testing.T) {
	ns, broker := testenv.NameServer(t), testenv.Broker(t)
	maria(t, func(t *testing.T, b *bundle) {
		group := "late-" + strings.ToLower(rand.Text()[:12])
		log := &said{text: "dead letters can't be taken in yet", heard: make(chan slog.Level, 1)}
		events := make(chan txmq.DeadLetterFound, 10)
		r, err := New(Config{
			Store: b.store(t), Broker: txmq.Broker{NameServers: []string{ns}},
			Sweep: SweepConfig{Every: -1}, Compensate: CompensateConfig{Every: -1},
			DeadLetters: []DeadLetter{{Group: group}}, Logger: slog.New(log),
			Observe: func(_ context.Context, e txmq.Event) {
				if e, ok := e.(txmq.DeadLetterFound); ok {
					events <- e
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.again = 100 * time.Millisecond
		run := func(until func()) {
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Errorf("Run = %v", err)
				}
			})
			until()
			stop()
			wg.Wait()
		}
		run(func() { // a stop that comes before the queue
			if level := <-log.heard; level != slog.LevelDebug {
				t.Errorf("logged at %v, want DEBUG: the queue comes with the first dead letter", level)
			}
		})
		run(func() {
			<-log.heard
			topic := "%DLQ%" + group
			if err := remoting.CreateTopic(t.Context(), broker, topic, 1, 6); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { dropTopic(remoting.Keys{}, broker, ns, topic) })
			known(t, ns, topic)
			if err := letter(ns, topic); err != nil {
				t.Error(err)
				return
			}
			if e := <-events; e.EventID != "e" || e.Consumer != group+":order-paid" {
				t.Errorf("event %+v", e)
			}
		})
	})
}

func TestQueueOfAnother(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		t.Run(version, func(t *testing.T) {
			g := testenv.ACL(t, version)
			keys := remoting.Keys{AccessKey: g.AdminKey, SecretKey: txmq.Secret(g.AdminSecret)}
			group := "other-" + strings.ToLower(rand.Text()[:12])
			topic := "%DLQ%" + group
			if err := keys.CreateTopic(t.Context(), g.Broker, topic, 1, 6); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dropTopic(keys, g.Broker, g.NameServer, topic) })
			known(t, g.NameServer, topic)
			maria(t, func(t *testing.T, b *bundle) {
				log := &said{text: "dead letters can't be taken in yet", heard: make(chan slog.Level, 1)}
				cfg := Config{
					Store:  b.store(t),
					Broker: txmq.Broker{NameServers: []string{g.NameServer}, AccessKey: g.AdminKey, SecretKey: "no-secret-of-the-broker"},
					Logger: slog.New(log), DeadLetters: []DeadLetter{{Group: group}},
				}.withDefaults()
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { intake{Config: cfg, DeadLetter: cfg.DeadLetters[0], again: lookAgain}.run(ctx) })
				if level := <-log.heard; level != slog.LevelError {
					t.Errorf("logged at %v, want ERROR: it does not pass by itself", level)
				}
				stop()
				wg.Wait()
			})
		})
	}
}

// known waits until the name server has heard of the topic.
func known(t *testing.T, ns, topic string) {
	t.Helper()
	ctx, yes := context.WithCancel(t.Context())
	defer yes()
	_ = loop.Loop{Interval: 20 * time.Millisecond, Step: func(ctx context.Context) (bool, error) {
		if brokers, _ := remoting.Brokers(ctx, ns, topic); len(brokers) > 0 {
			yes()
		}
		return false, nil
	}}.Run(ctx)
}

// letter puts a message into a dead-letter queue, by the bare client: txmq
// refuses system topics.
func letter(ns, topic string) error {
	m := primitive.NewMessage(topic, []byte("x"))
	m.WithProperty(txmq.PropertyEventID, "e")
	m.WithProperty(primitive.PropertyRetryTopic, "order-paid")
	p, err := client.NewDefaultProducer(client.WithNsResolver(primitive.NewPassthroughResolver([]string{ns})),
		client.WithGroupName("p-late"), client.WithInstanceName(fmt.Sprint("p-late-", time.Now().UnixNano())))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	_, err = p.SendSync(context.Background(), m)
	return err
}

func dropTopic(keys remoting.Keys, broker, ns, topic string) {
	for addr, code := range map[string]int{broker: remoting.DeleteTopicInBroker, ns: remoting.DeleteTopicInNameSrv} {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, _ = keys.Call(ctx, addr, remoting.Request(code, map[string]string{"topic": topic}, nil)) // a tidy broker is a courtesy
		cancel()
	}
}
