package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
)

// service is a producer on a real broker and a real MariaDB, with a proxy of
// its own before the broker.
type service struct {
	*bundle
	proxy *wireproxy.Proxy
	addr  string // of the broker, past the proxy
	topic string
	cfg   Config
}

// patience is for what the broker does in its own time: it checks halves older
// than 2 s every second.
const patience = 30 * time.Second

func onBroker(t *testing.T) *service {
	t.Helper()
	ns := testenv.NameServer(t)
	s := &service{bundle: &bundle{events: new(recorder)}, addr: testenv.Broker(t)}
	s.db, s.store = open(t, databases[1].dials(t), nil)
	name := strings.ToLower(rand.Text()[:12])
	s.topic = "paid-" + name
	must(t, remoting.CreateTopic(t.Context(), s.addr, s.topic, 1, 6))
	until(t, "the topic's route", func() bool {
		_, err := remoting.Brokers(t.Context(), ns, s.topic)
		return err == nil
	})
	var err error
	s.proxy, err = wireproxy.Start(t.Context(), ns)
	must(t, err)
	t.Cleanup(func() {
		s.proxy.Close()
		must(t, s.proxy.Err())
	})
	s.cfg = Config{
		Store: s.store, Broker: txmq.Broker{NameServers: []string{s.proxy.NameServer()}}, Group: "orders-" + name,
		Topics: []string{s.topic}, FenceAfter: 1500 * time.Millisecond, CheckInterval: time.Second, Observe: s.events.observe,
	}
	return s
}

// start makes one process of the service.
func (s *service) start(t *testing.T, change ...func(*Config)) *Producer {
	t.Helper()
	cfg := s.cfg
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	must(t, err)
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	return p
}

func (s *service) message(event, body string) txmq.Message {
	return txmq.Message{Topic: s.topic, EventID: event, Body: []byte(body)}
}

// visible reads the topic, as a consumer does, from its start.
func (s *service) visible(t *testing.T) []string {
	t.Helper()
	res, err := remoting.Call(t.Context(), s.addr, remoting.Request(remoting.PullMessage, map[string]string{
		"consumerGroup": "reader", "topic": s.topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
		"sysFlag": strconv.Itoa(1 << 2), "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
		"subVersion": "0", "expressionType": "TAG",
	}, nil))
	var code *remoting.CodeError
	if errors.As(err, &code) && (code.Code == remoting.ResPullNotFound || code.Code == remoting.ResPullOffsetMoved) {
		return nil
	}
	must(t, err)
	var bodies []string
	for _, m := range primitive.DecodeMessage(res.Body) {
		bodies = append(bodies, string(m.Body))
		if m.GetProperty(txmq.PropertyEventID) == "" || m.GetProperty(txmq.PropertyAttempt) == "" ||
			m.GetProperty(txmq.PropertyDatabaseID) != s.store.DatabaseID() || m.GetProperty(txmq.PropertyBorn) == "" {
			t.Errorf("properties of a visible message = %v, want txmq's", m.GetProperties())
		}
	}
	return bodies
}

// wantVisible waits for n messages, and wants all to have this body. Some
// brokers show a message twice.
func (s *service) wantVisible(t *testing.T, n int, body string) {
	t.Helper()
	until(t, strconv.Itoa(n)+" visible messages", func() bool { return len(s.visible(t)) >= n })
	got := s.visible(t)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, one(body)) {
		t.Errorf("visible = %v, want %v", got, body)
	}
}

// checked waits for a check-back of the event that was answered v.
func (s *service) checked(t *testing.T, event string, v txmq.Verdict) txmq.Checked {
	t.Helper()
	var found txmq.Checked
	until(t, "a check answered "+v.String(), func() bool {
		for _, e := range s.events.of(event) {
			if c, ok := e.(txmq.Checked); ok && c.Verdict == v {
				found = c
				return true
			}
		}
		return false
	})
	return found
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ok := false
	must(t, loop.Loop{Interval: 20 * time.Millisecond, Step: func(context.Context) (bool, error) {
		if ok = done(); ok {
			stop()
		}
		return false, nil
	}}.Run(ctx))
	if !ok {
		t.Fatalf("waited %v for %s", patience, what)
	}
}

func TestOnBroker(t *testing.T) {
	t.Parallel()
	lostEnd := wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1}

	t.Run("commit is visible, rollback is not", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		_, err := p.SendInTransaction(t.Context(), s.message("no", "no"), func(*gorm.DB) error { return errBusiness })
		wantError(t, err, errBusiness)
		m := s.message("yes", "yes")
		r, err := p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		wantReceipt(t, r, txmq.Commit, true)
		if r.MsgID == "" {
			t.Error("receipt has no MsgID")
		}
		s.wantVisible(t, 1, "yes")
		if got := s.effects(t, "yes"); !slices.Equal(got, one("yes")) {
			t.Errorf("effects = %v, want yes", got)
		}
	})
	t.Run("B03 check while the local transaction is running", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		m := s.message("b03", "a")
		_, err := p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
			err := apply(m)(tx)
			if c := s.checked(t, "b03", txmq.Unknown); c.Reason != checker.ReasonLocked {
				t.Errorf("reason = %q, want %q", c.Reason, checker.ReasonLocked)
			}
			return err
		})
		wantError(t, err, nil)
		s.wantVisible(t, 1, "a")
	})
	t.Run("B04 check has fenced a stalled call", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		p.halves = stalling{p.halves, func() { s.checked(t, "b04", txmq.Rollback) }}
		m := s.message("b04", "a")
		_, err := p.SendInTransaction(t.Context(), m, func(*gorm.DB) error { t.Error("function ran"); return nil })
		wantError(t, err, txmq.ErrFenced)
		p.halves = p.halves.(stalling).halves
		m.Body = []byte("b")
		_, err = p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		s.wantVisible(t, 1, "b")
	})
	t.Run("B06 end-transaction is lost", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		lost := s.proxy.Inject(lostEnd)
		m := s.message("b06", "a")
		_, err := p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		must(t, lost.Wait(t.Context(), 1))
		s.wantVisible(t, 1, "a")
		s.checked(t, "b06", txmq.Commit)
	})
	t.Run("B07 three halves of one call", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t, func(c *Config) { c.SendTimeout, c.Retries = time.Second, 2 })
		for _, code := range []int{remoting.SendMessage, remoting.SendMessageV2} {
			s.proxy.Inject(wireproxy.Fault{Code: code, Action: wireproxy.LoseReply, Count: 2})
		}
		m := s.message("b07", "a")
		_, err := p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		s.wantVisible(t, 3, "a")
		if got := s.effects(t, "b07"); !slices.Equal(got, one("a")) {
			t.Errorf("effects = %v, want one", got)
		}
	})
	t.Run("B08 context is done before", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		conns := s.proxy.Conns()[s.addr]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.SendInTransaction(ctx, s.message("b08", "a"), func(*gorm.DB) error { t.Error("function ran"); return nil })
		wantError(t, err, context.Canceled)
		if n := s.proxy.Count(remoting.SendMessage) + s.proxy.Count(remoting.SendMessageV2); n != 0 {
			t.Errorf("%d halves were sent, want none", n)
		}
		m := s.message("b08 other", "b")
		_, err = p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		if got := s.proxy.Conns()[s.addr]; got > max(conns, 1) {
			t.Errorf("%d connections, want the %d of before", got, conns)
		}
		s.wantVisible(t, 1, "b")
	})
	t.Run("B69 rolled back, rollback lost, sent again with another body", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		lost := s.proxy.Inject(lostEnd)
		_, err := p.SendInTransaction(t.Context(), s.message("b69", "wrong"), func(*gorm.DB) error { return errBusiness })
		wantError(t, err, errBusiness)
		must(t, lost.Wait(t.Context(), 1))
		m := s.message("b69", "right")
		_, err = p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		s.checked(t, "b69", txmq.Rollback)
		s.wantVisible(t, 1, "right")
	})
	t.Run("B78 producer group shared by two databases", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		p := s.start(t)
		_, elsewhere := open(t, databases[1].dials(t), nil)
		s.start(t, func(c *Config) { c.Store = elsewhere })
		s.proxy.Inject(lostEnd)
		m := s.message("b78", "a")
		_, err := p.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		s.wantVisible(t, 1, "a")
	})
	t.Run("B02 successor that sends nothing gets its predecessor's check", func(t *testing.T) {
		t.Parallel()
		s := onBroker(t)
		first := s.start(t)
		lost := s.proxy.Inject(lostEnd)
		m := s.message("b02", "a")
		_, err := first.SendInTransaction(t.Context(), m, apply(m))
		wantError(t, err, nil)
		must(t, lost.Wait(t.Context(), 1))
		must(t, first.Close(t.Context()))
		sent := s.proxy.Count(remoting.SendMessage) + s.proxy.Count(remoting.SendMessageV2)
		s.start(t)
		s.wantVisible(t, 1, "a")
		s.checked(t, "b02", txmq.Commit)
		if n := s.proxy.Count(remoting.SendMessage) + s.proxy.Count(remoting.SendMessageV2); n != sent {
			t.Errorf("%d messages were sent by the successor, want none", n-sent)
		}
	})
}

// stalling holds a call between its half and its local transaction.
type stalling struct {
	halves
	stall func()
}

func (s stalling) SendHalf(ctx context.Context, m txmq.Message, props map[string]string,
	local func(rocketmq.Half) txmq.Verdict,
) (rocketmq.HalfResult, error) {
	return s.halves.SendHalf(ctx, m, props, func(h rocketmq.Half) txmq.Verdict {
		s.stall()
		return local(h)
	})
}
