package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

// fakeBroker is name server and broker in one, for answers that a real broker
// gives on bad days only. Its one topic is "t".
type fakeBroker struct {
	addr string
	ends chan remoting.Frame // end-transactions, in order

	others []string // addresses of more brokers that hold the topic; set before use

	mu   sync.Mutex
	send func(req remoting.Frame) *remoting.Frame // the answer to a send; nil: none
	rest func(req remoting.Frame) remoting.Frame  // the answer to what is not named in serve
}

func newFakeBroker(t *testing.T) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{addr: ln.Addr().String(), ends: make(chan remoting.Frame, 100)}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, nil)
			wg.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		conns.Range(func(c, _ any) bool {
			_ = c.(net.Conn).Close() // the client keeps the name server's
			return true
		})
		wg.Wait()
	})
	return b
}

func (b *fakeBroker) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		req, err := remoting.Read(conn, remoting.MaxFrame)
		if err != nil {
			return
		}
		res := req.Reply(remoting.ResSuccess)
		switch req.Code {
		case remoting.GetRouteInfoByTopic:
			if topic := req.ExtFields["topic"]; topic != "t" && topic != selfTestTopic {
				res = req.Reply(remoting.ResTopicNotExist)
				break
			}
			res.Body = b.route()
		case remoting.SendMessage:
			b.mu.Lock()
			answer := b.send(req)
			b.mu.Unlock()
			if answer == nil {
				continue
			}
			res = *answer
		case remoting.EndTransaction:
			b.ends <- req
			continue
		default:
			b.mu.Lock()
			if b.rest != nil {
				res = b.rest(req)
			}
			b.mu.Unlock()
		}
		if req.IsOneWay() {
			continue
		}
		if res.Write(conn) != nil {
			return
		}
	}
}

// route is one queue at this broker, and one at each of the others.
func (b *fakeBroker) route() []byte {
	var brokers, queues []string
	for i, addr := range append([]string{b.addr}, b.others...) {
		name := "broker-" + string(rune('a'+i))
		brokers = append(brokers, fmt.Sprintf(`{"brokerAddrs":{"0":%q},"brokerName":%q,"cluster":"c"}`, addr, name))
		queues = append(queues, fmt.Sprintf(`{"brokerName":%q,"perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSynFlag":0}`, name))
	}
	return fmt.Appendf(nil, `{"brokerDatas":[%s],"queueDatas":[%s]}`, strings.Join(brokers, ","), strings.Join(queues, ","))
}

// answer makes the broker answer sends so.
func (b *fakeBroker) answer(code int, remark string, extra ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.send = func(req remoting.Frame) *remoting.Frame {
		res := req.Reply(code)
		res.Remark = remark
		res.ExtFields = map[string]string{"queueId": "0", "queueOffset": "7", "msgId": "7F00000100002A9F0000000000000001"}
		for i := 0; i+1 < len(extra); i += 2 {
			res.ExtFields[extra[i]] = extra[i+1]
		}
		return &res
	}
}

func (b *fakeBroker) silent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.send = func(remoting.Frame) *remoting.Frame { return nil }
}

// end is the next end-transaction's commitOrRollback: 8 commits, 12 rolls back,
// 0 is unknown.
func (b *fakeBroker) end(t *testing.T) string {
	t.Helper()
	return receive(t, b.ends, "end-transaction").ExtFields["commitOrRollback"]
}

// receive waits for what ought to come.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

func newTx(t *testing.T, cfg TxConfig) *TxProducer {
	t.Helper()
	if cfg.Check == nil {
		cfg.Check = func(context.Context, *primitive.MessageExt) txmq.Verdict { return txmq.Unknown }
	}
	p, err := NewTxProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func startTx(t *testing.T, cfg TxConfig) *TxProducer {
	t.Helper()
	p := newTx(t, cfg)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return p
}

func at(addr string) txmq.Broker { return txmq.Broker{NameServers: []string{addr}} }

func message(topic, event string) txmq.Message {
	return txmq.Message{Topic: topic, EventID: event, Body: []byte("s3cret")}
}

func never(t *testing.T) func(Half) txmq.Verdict {
	t.Helper()
	return func(Half) txmq.Verdict {
		t.Error("local ran")
		return txmq.Commit
	}
}

func TestSendHalf(t *testing.T) {
	t.Parallel()
	type bundle struct {
		b *fakeBroker
		p *TxProducer
	}
	setup := func(t *testing.T) bundle {
		t.Helper()
		t.Parallel()
		b := newFakeBroker(t)
		b.answer(remoting.ResSuccess, "")
		return bundle{b, startTx(t, TxConfig{Broker: at(b.addr), Group: "g", Topics: []string{"t"}, SendTimeout: 2 * time.Second})}
	}

	t.Run("each verdict is told", func(t *testing.T) {
		x := setup(t)
		for v, want := range map[txmq.Verdict]string{txmq.Commit: "8", txmq.Rollback: "12", txmq.Unknown: "0"} {
			r, err := x.p.SendHalf(t.Context(), message("t", "e"), nil, func(h Half) txmq.Verdict {
				if h.Topic != "t" || h.BrokerName != "broker-a" || h.QueueOffset != 7 || h.MsgID == "" || h.OffsetMsgID == "" {
					t.Errorf("half = %+v", h)
				}
				return v
			})
			if err != nil || !r.Ran || r.Verdict != v || !r.Ended {
				t.Errorf("SendHalf = %+v, %v; want %v", r, err, v)
			}
			if got := x.b.end(t); got != want {
				t.Errorf("commitOrRollback = %s, want %s", got, want)
			}
		}
	})
	t.Run("a panic in local is told as unknown and goes on", func(t *testing.T) {
		x := setup(t)
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want boom", got)
				}
				select {
				case end := <-x.b.ends:
					if got := end.ExtFields["commitOrRollback"]; got != "0" {
						t.Errorf("commitOrRollback = %s, want 0", got)
					}
				case <-time.After(20 * time.Second):
					t.Error("no end-transaction")
				}
			}()
			_, _ = x.p.SendHalf(t.Context(), message("t", "e"), nil, func(Half) txmq.Verdict { panic("boom") })
		}()
	})
	t.Run("B17 stored but not durable", func(t *testing.T) {
		x := setup(t)
		for _, code := range []int{remoting.ResFlushDiskTimeout, remoting.ResSlaveNotAvailable, remoting.ResFlushSlaveTimeout} {
			x.b.answer(code, "not safe")
			r, err := x.p.SendHalf(t.Context(), message("t", "e"), nil, never(t))
			if !errors.Is(err, txmq.ErrHalfNotDurable) || r.Ran || r.Verdict == txmq.Commit {
				t.Errorf("SendHalf = %+v, %v; want ErrHalfNotDurable", r, err)
			}
			if got := x.b.end(t); got != "12" {
				t.Errorf("commitOrRollback = %s, want 12", got)
			}
		}
	})
	t.Run("the broker's codes", func(t *testing.T) {
		x := setup(t)
		for code, want := range map[int]error{
			remoting.ResMessageIllegal: txmq.ErrRefused, remoting.ResNoPermission: txmq.ErrRefused, remoting.ResTopicNotExist: txmq.ErrRefused,
			remoting.ResServiceNotAvailable: txmq.ErrBrokerUnreachable, remoting.ResSystemBusy: txmq.ErrBrokerUnreachable,
		} {
			x.b.answer(code, "for a reason")
			r, err := x.p.SendHalf(t.Context(), message("t", "e"), nil, never(t))
			var ce *CodeError
			if !errors.Is(err, want) || r.Ran || !errors.As(err, &ce) || ce.Code != code || ce.Remark != "for a reason" {
				t.Errorf("SendHalf = %+v, %v; want %v with code %d", r, err, want, code)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("SendHalf = %v: shows the body", err)
			}
		}
	})
	t.Run("client panics after local ran", func(t *testing.T) { // Q06
		x := setup(t)
		x.b.answer(remoting.ResSuccess, "", "msgId", "odd")
		r, err := x.p.SendHalf(t.Context(), message("t", "e"), nil, func(Half) txmq.Verdict { return txmq.Commit })
		if err != nil || !r.Ran || r.Verdict != txmq.Commit || r.Ended {
			t.Errorf("SendHalf = %+v, %v; want a commit that is not ended", r, err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		x := setup(t)
		x.b.silent()
		r, err := x.p.SendHalf(t.Context(), message("t", "e"), nil, never(t))
		if !errors.Is(err, txmq.ErrBrokerUnreachable) || r.Ran {
			t.Errorf("SendHalf = %+v, %v; want ErrBrokerUnreachable", r, err)
		}
	})
	t.Run("topic does not exist", func(t *testing.T) {
		x := setup(t)
		r, err := x.p.SendHalf(t.Context(), message("other", "e"), nil, never(t))
		if !errors.Is(err, txmq.ErrRefused) || r.Ran {
			t.Errorf("SendHalf = %+v, %v; want ErrRefused", r, err)
		}
	})
	t.Run("name server away", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		x := startTx(t, TxConfig{Broker: at(b.addr), Group: "g", Topics: []string{"t"}})
		x.cfg.Broker = at("127.0.0.1:1") // whom we ask about the missing route
		r, err := x.SendHalf(t.Context(), message("other", "e"), nil, never(t))
		if !errors.Is(err, txmq.ErrBrokerUnreachable) || r.Ran || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("SendHalf = %+v, %v; want ErrBrokerUnreachable with the address", r, err)
		}
	})
	t.Run("an abandoned call runs nothing and is rolled back", func(t *testing.T) {
		x := setup(t)
		c := newCall()
		msg := newMessage(message("t", "e"), nil)
		x.p.calls.Store(msg, c)
		if !c.abandon() {
			t.Fatal("abandon = false")
		}
		if got := (*listener)(x.p).ExecuteLocalTransaction(msg); got != primitive.RollbackMessageState {
			t.Errorf("state = %v, want rollback", got)
		}
		if c.claim() || len(c.stored) != 0 {
			t.Error("local would run")
		}
	})
	t.Run("not started and closed", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		p := newTx(t, TxConfig{Broker: at(b.addr), Group: "g"})
		if _, err := p.SendHalf(t.Context(), message("t", "e"), nil, never(t)); !errors.Is(err, txmq.ErrNotStarted) {
			t.Errorf("SendHalf = %v, want ErrNotStarted", err)
		}
		for range 2 {
			if err := p.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
		}
		if _, err := p.SendHalf(t.Context(), message("t", "e"), nil, never(t)); !errors.Is(err, txmq.ErrClosed) {
			t.Errorf("SendHalf = %v, want ErrClosed", err)
		}
	})
	t.Run("B15 check after Close", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		p := newTx(t, TxConfig{Broker: at(b.addr), Group: "g", Topics: []string{"t"}, Check: func(context.Context, *primitive.MessageExt) txmq.Verdict {
			t.Error("checked")
			return txmq.Rollback
		}})
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); !errors.Is(err, errStartedBefore) {
			t.Errorf("second Start = %v, want %v", err, errStartedBefore)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		if got := (*listener)(p).CheckLocalTransaction(&primitive.MessageExt{}); got != primitive.UnkonwnState {
			t.Errorf("state = %v, want unknown", got)
		}
	})
	t.Run("Close gives up waiting", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		b.answer(remoting.ResSuccess, "")
		p := newTx(t, TxConfig{Broker: at(b.addr), Group: "g", Topics: []string{"t"}})
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		in, out := make(chan struct{}), make(chan struct{})
		over := make(chan HalfResult, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, _ := p.SendHalf(context.Background(), message("t", "e"), nil, func(Half) txmq.Verdict { close(in); <-out; return txmq.Commit })
			over <- r
		})
		receive(t, in, "local")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close = %v, want context.Canceled", err)
		}
		close(out)
		if r := receive(t, over, "result"); !r.Ran || r.Verdict != txmq.Commit || r.Ended {
			t.Errorf("SendHalf = %+v, want a commit that is not ended", r)
		}
		wg.Wait()
	})
}

func TestStartUnreachable(t *testing.T) {
	t.Parallel()
	nobody := at("127.0.0.1:1")
	sender, err := NewSender(SenderConfig{Broker: nobody, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	push, err := NewPushConsumer(PushConfig{
		Broker: nobody, Group: "g", Subscriptions: []Subscription{{Topic: "t"}},
		Handle: func(context.Context, *primitive.MessageExt) Result { return Result{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]interface {
		Start(context.Context) error
		Close(context.Context) error
	}{"tx": newTx(t, TxConfig{Broker: nobody, Group: "g"}), "sender": sender, "push": push} {
		began := time.Now()
		err := c.Start(t.Context())
		if !errors.Is(err, txmq.ErrBrokerUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: Start = %v, want ErrBrokerUnreachable with the address", name, err)
		}
		if took := time.Since(began); took > askTimeout+time.Second {
			t.Errorf("%s: Start took %v, want at most %v", name, took, askTimeout)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("%s: Close = %v", name, err)
		}
	}
}

func TestSenderAnswers(t *testing.T) {
	t.Parallel()
	b := newFakeBroker(t)
	s, err := NewSender(SenderConfig{Broker: at(b.addr), Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	for code, want := range map[int]error{
		remoting.ResSuccess: nil, remoting.ResFlushDiskTimeout: txmq.ErrNotDurable, remoting.ResNoPermission: txmq.ErrRefused,
	} {
		b.answer(code, "")
		sent, err := s.Send(t.Context(), message("t", "e"), nil)
		if !errors.Is(err, want) || want == nil && (err != nil || sent.QueueOffset != 7 || sent.BrokerName != "broker-a") {
			t.Errorf("Send = %+v, %v; want %v", sent, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Send(ctx, message("t", "e"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want context.Canceled", err)
	}
}
