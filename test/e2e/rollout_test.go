package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	clientproducer "github.com/apache/rocketmq-client-go/v2/producer"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

// sender is one process of the group, whatever its code.
type sender interface {
	// send runs one local transaction, which fails if told so, and whose
	// end-transaction is lost.
	send(t *testing.T, event string, fail bool)
	stop(t *testing.T)
}

// rollout is a world whose orders come from old code and new.
type rollout struct {
	*world
	seen *events // of the new code

	mu      sync.Mutex
	said    map[string][]txmq.Verdict // by the old code's check, by event
	oldGone bool
	failed  []string // events whose local transaction failed
	fine    []string // ... committed
}

func newRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{world: newWorld(t), seen: new(events), said: map[string][]txmq.Verdict{}}
	_, err := r.sql.ExecContext(r.ctx, "CREATE TABLE e2e_legacy (no VARBINARY(255) PRIMARY KEY)")
	must(t, err)
	r.consumer(t, new(events), func(c *consumer.Config) {
		c.Handlers[0].EventID = func(m *primitive.MessageExt) string {
			if id := m.GetProperty(txmq.PropertyEventID); id != "" {
				return id
			}
			return consumer.FromKey(m) // of the old code's messages
		}
	})
	return r
}

// legacyCheck is the old code's: its table knows what has committed. What is not
// there may still come, until the old code has stopped.
func (r *rollout) legacyCheck(m *primitive.MessageExt) txmq.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, n := txmq.Unknown, 0
	err := r.sql.QueryRowContext(r.ctx, "SELECT COUNT(*) FROM e2e_legacy WHERE no = ?", m.GetKeys()).Scan(&n)
	switch {
	case err != nil:
	case n > 0:
		v = txmq.Commit
	case r.oldGone:
		v = txmq.Rollback
	}
	r.said[m.GetKeys()] = append(r.said[m.GetKeys()], v)
	return v
}

func (r *rollout) saidOf(event string, v txmq.Verdict) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.said[event], v)
}

func (r *rollout) sends(t *testing.T, s sender, events ...string) {
	t.Helper()
	for _, e := range events {
		fail := strings.Contains(e, "fails")
		s.send(t, e, fail)
		if fail {
			r.failed = append(r.failed, e)
		} else {
			r.fine = append(r.fine, e)
		}
	}
}

// rawProducer is the client's own transaction producer.
func (r *rollout) rawProducer(t *testing.T, ns string, l primitive.TransactionListener, name string) rocketmq.TransactionProducer {
	t.Helper()
	p, err := rocketmq.NewTransactionProducer(l,
		clientproducer.WithNsResolver(primitive.NewPassthroughResolver([]string{ns})), clientproducer.WithGroupName(r.senders),
		clientproducer.WithInstanceName(name+r.topic), clientproducer.WithRetry(0), clientproducer.WithSendMsgTimeout(10*time.Second))
	must(t, err)
	must(t, p.Start())
	return p
}

// old is code from before txmq: a hand-written listener over a table of its own.
type old struct {
	r *rollout
	p rocketmq.TransactionProducer
}

func (r *rollout) old(t *testing.T) *old {
	t.Helper()
	o := &old{r: r}
	o.p = r.rawProducer(t, r.ns, o, "old")
	return o
}

func (o *old) send(t *testing.T, event string, fail bool) {
	t.Helper()
	m := primitive.NewMessage(o.r.topic, []byte("{}"))
	m.WithKeys([]string{event})
	if fail {
		m.WithTag("fail")
	}
	_, err := o.p.SendMessageInTransaction(o.r.ctx, m)
	must(t, err)
}

// ExecuteLocalTransaction answers UnkonwnState: the end is lost.
func (o *old) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	_ = o.r.db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("INSERT INTO e2e_legacy (no) VALUES (?)", m.GetKeys()).Error; err != nil {
			return err
		}
		if err := o.r.order(m.GetKeys())(tx); err != nil || m.GetTags() == "" {
			return err
		}
		return errBusiness
	})
	return primitive.UnkonwnState
}

func (o *old) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	switch o.r.legacyCheck(m) {
	case txmq.Commit:
		return primitive.CommitMessageState
	case txmq.Rollback:
		return primitive.RollbackMessageState
	default:
		return primitive.UnkonwnState
	}
}

func (o *old) stop(t *testing.T) {
	t.Helper()
	must(t, o.p.Shutdown())
}

// loser is a proxy that loses the ends of sends, not those after a check.
func (r *rollout) loser(t *testing.T) *wireproxy.Proxy {
	t.Helper()
	proxy := r.proxy(t)
	proxy.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Match: endOfSend})
	return proxy
}

// whole is a producer of txmq.
type whole struct {
	r *rollout
	p *producer.Producer
}

func (r *rollout) whole(t *testing.T) *whole {
	t.Helper()
	return &whole{r, r.producer(t, r.seen, through(r.loser(t)), func(c *producer.Config) { c.Foreign = r.legacyCheck })}
}

func (w *whole) send(t *testing.T, event string, fail bool) {
	t.Helper()
	_, err := w.p.SendInTransaction(w.r.ctx, w.r.message(event), func(tx *gorm.DB) error {
		if err := w.r.order(event)(tx); err != nil || !fail {
			return err
		}
		return errBusiness
	})
	if fail {
		wantError(t, err, errBusiness)
		return
	}
	must(t, err)
}

func (w *whole) stop(t *testing.T) {
	t.Helper()
	must(t, w.p.Close(context.Background()))
}

// half is the client's producer with a checker.Listener.
type half struct {
	r *rollout
	l *checker.Listener
	p rocketmq.TransactionProducer
}

func (r *rollout) half(t *testing.T) *half {
	t.Helper()
	l, err := checker.NewListener(checker.Config{
		Store: r.store, FenceAfter: time.Second, Interval: time.Second, Foreign: r.legacyCheck, Observe: r.seen.observe,
	}, func(tx *gorm.DB, m *primitive.Message) error {
		if err := r.order(m.GetProperty(txmq.PropertyEventID))(tx); err != nil || m.GetTags() == "" {
			return err
		}
		return errBusiness
	})
	must(t, err)
	return &half{r, l, r.rawProducer(t, r.loser(t).NameServer(), l, "half")}
}

func (h *half) send(t *testing.T, event string, fail bool) {
	t.Helper()
	m, want := primitive.NewMessage(h.r.topic, []byte("{}")), primitive.CommitMessageState
	if fail {
		m.WithTag("fail")
		want = primitive.RollbackMessageState
	}
	must(t, h.l.Stamp(m, event))
	res, err := h.p.SendMessageInTransaction(h.r.ctx, m)
	must(t, err)
	if res.State != want {
		t.Errorf("state of %s = %v, want %v", event, res.State, want)
	}
}

func (h *half) stop(t *testing.T) {
	t.Helper()
	must(t, h.l.Close(h.r.ctx))
	must(t, h.p.Shutdown())
}

func (r *rollout) sender(t *testing.T, kind string) sender {
	t.Helper()
	switch kind {
	case "old":
		return r.old(t)
	case "producer":
		return r.whole(t)
	default:
		return r.half(t)
	}
}

// addsUp waits until every event that committed has had its effect, and says
// that it had one, and that no other event had any.
func (r *rollout) addsUp(t *testing.T) {
	t.Helper()
	want := slices.Sorted(slices.Values(r.fine))
	var got []string
	r.until(t, fmt.Sprintf("effects of %v", want), func() (bool, string) {
		got = r.strings(t, "SELECT event FROM e2e_share ORDER BY event")
		return len(got) >= len(want), fmt.Sprint(got)
	})
	if !slices.Equal(got, want) {
		t.Errorf("effects = %v, want %v", got, want)
	}
	if orders := r.strings(t, "SELECT event FROM e2e_order ORDER BY event"); !slices.Equal(orders, want) {
		t.Errorf("orders = %v, want %v", orders, want)
	}
	if amount := r.number(t, "SELECT amount FROM e2e_balance"); amount != 10*len(want) {
		t.Errorf("balance = %d, want %d", amount, 10*len(want))
	}
}

// neverWrong looks at every answer that was given.
func (r *rollout) neverWrong(t *testing.T) {
	t.Helper()
	for _, c := range of[txmq.Checked](r.seen) {
		if c.EventID == "" {
			continue // the old code's; see said
		}
		if c.Verdict == txmq.Rollback && slices.Contains(r.fine, c.EventID) || c.Verdict == txmq.Commit && slices.Contains(r.failed, c.EventID) {
			t.Errorf("check = %+v: wrong", c)
		}
	}
	for _, e := range r.fine {
		if r.saidOf(e, txmq.Rollback) {
			t.Errorf("the old code's check rolled %s back, which had committed", e)
		}
	}
	for _, e := range r.failed {
		if r.saidOf(e, txmq.Commit) {
			t.Errorf("the old code's check committed %s, which had failed", e)
		}
	}
}

// TestRollOut brings new code into the producer group of old code that kept its
// own table. Every end-transaction is lost, so all is decided by check-backs.
func TestRollOut(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"producer", "listener"}, {"listener", "producer"}} {
		t.Run("new after old: "+strings.Join(order, ", then "), func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			before := r.old(t)
			r.sends(t, before, "old-1", "old-2", "old-fails")
			before.stop(t)
			r.oldGone = true

			for i, kind := range order {
				now := r.sender(t, kind)
				r.sends(t, now, kind+"-1", kind+"-fails")
				if i == 0 { // it leaves its own halves to its successor, and the old ones that it has not met
					now.stop(t)
					continue
				}
				r.until(t, "every failure rolled back by a check", func() (bool, string) {
					fences := r.number(t, "SELECT COUNT(*) FROM t_tx_log WHERE state = ?", model.Fenced)
					return fences == len(order) && r.saidOf("old-fails", txmq.Rollback), fmt.Sprint(fences)
				})
				r.sends(t, now, "marker")
				r.addsUp(t)
				now.stop(t)
			}
			r.neverWrong(t)
		})
	}

	t.Run("old and new side by side", func(t *testing.T) {
		t.Parallel()
		r := newRollout(t)
		all := map[string]sender{}
		for _, kind := range []string{"old", "producer", "listener"} {
			all[kind] = r.sender(t, kind)
		}
		for _, n := range []string{"1", "fails", "2", "3"} {
			for _, kind := range []string{"old", "producer", "listener"} {
				r.sends(t, all[kind], kind+"-"+n)
			}
		}
		r.until(t, "the failures of new code fenced", func() (bool, string) {
			n := r.number(t, "SELECT COUNT(*) FROM t_tx_log WHERE state = ?", model.Fenced)
			return n == 2, fmt.Sprint(n)
		})
		r.addsUp(t)
		r.sends(t, all["listener"], "marker")
		r.addsUp(t)
		for _, s := range all {
			s.stop(t)
		}
		r.neverWrong(t)
		if r.saidOf("old-fails", txmq.Rollback) {
			t.Error("the old code's check decided what it could not know")
		}
	})
}
