package e2e

import (
	"testing"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
)

// TestBrokerVersions runs the main job on the brokers beside the default one:
// commit, rollback, a lost end-transaction and its check-back, one effect.
func TestBrokerVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.9.7", "5.5.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			newWorldOn(t, testenv.NameServerVersion(t, version), testenv.BrokerVersion(t, version)).mainJob(t)
		})
	}
}

// mainJob is what a service asks of txmq every day.
func (w *world) mainJob(t *testing.T) {
	t.Helper()
	o := w.observer(t)
	w.consumer(t, new(events))
	proxy, seen := w.proxy(t), new(events)
	p := w.producer(t, seen, through(proxy))
	// The third end: they go out one after another, on one connection.
	lost := proxy.Inject(wireproxy.Fault{
		Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Skip: 2, Count: 1, Match: endOfSend,
	})

	w.send(t, p, "committed")
	_, err := p.SendInTransaction(w.ctx, w.message("refused"), func(*gorm.DB) error { return errBusiness })
	wantError(t, err, errBusiness)
	w.send(t, p, "checked")
	must(t, lost.Wait(w.ctx, 1))

	one(t, w, seen, "Commit by a check", func(c txmq.Checked) bool {
		return c.EventID == "checked" && c.Verdict == txmq.Commit
	})
	w.visible(t, o, "committed", 1)
	w.visible(t, o, "checked", 1)
	w.settled(t, "committed", "checked")
	marker := w.invisible(t, p, o, "refused")
	w.settled(t, "committed", "checked", marker)
}
