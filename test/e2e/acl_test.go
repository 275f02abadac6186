package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/producer"
)

// TestACL runs the main job on brokers that ask for a signature, and wants a
// wrong one to be an error at once.
func TestACL(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.9.7", "5.5.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			g := testenv.ACL(t, version)
			w := newWorldBehind(t, remoting.Keys{AccessKey: g.AdminKey, SecretKey: txmq.Secret(g.AdminSecret)}, g.NameServer, g.Broker)
			w.mainJob(t)
			w.refused(t)
		})
	}
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
	for what, start := range map[string]func(context.Context) error{"producer.Start": p.Start, "consumer.Run": c.Run} {
		err := start(w.ctx)
		wantError(t, err, txmq.ErrRefused)
		if err != nil && (!strings.Contains(err.Error(), "ignature failed") || strings.Contains(err.Error(), "no-secret")) {
			t.Errorf("%s = %v, want the broker's words and no secret", what, err)
		}
	}
}
