package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

func TestUnsent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{classify(errors.New("CODE: 13, DESC: illegal")), true},
		{classify(errors.New("CODE: 2, DESC: [TIMEOUT_CLEAN_QUEUE]broker busy")), true},
		{classify(errors.New("CODE: 14, DESC: service not available")), true},
		{classify(errors.New("CODE: 1, DESC: AclException")), true},
		{classify(errors.New("CODE: 1, DESC: NullPointerException")), false},
		{classify(&net.OpError{Op: "dial", Err: errors.New("refused")}), true},
		{classify(&net.OpError{Op: "write", Err: errors.New("broken pipe")}), false},
		{classify(errors.New("request timeout")), false},
		{unsent{errors.New("no route")}, true},
		{txmq.ErrClosed, true},
		{fmt.Errorf("%w: flush", txmq.ErrNotDurable), false},
		{context.Canceled, false}, // came while the request was under way
	} {
		if got := Unsent(fmt.Errorf("send: %w", tt.err)); got != tt.want {
			t.Errorf("Unsent(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func startSender(t *testing.T, b *fakeBroker) *Sender {
	t.Helper()
	s, err := NewSender(SenderConfig{Broker: at(b.addr), Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestSending(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, s *Sender, topic string) *Sending {
		t.Helper()
		g, err := s.Begin(message(topic, "e"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	t.Run("ends with ctx, though the request goes on", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		arrived, release := make(chan struct{}), make(chan struct{})
		b.mu.Lock()
		b.send = func(req remoting.Frame) *remoting.Frame {
			close(arrived)
			<-release
			res := req.Reply(remoting.ResNoPermission)
			return &res
		}
		b.mu.Unlock()
		s := startSender(t, b)
		g := begin(t, s, "t")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			<-arrived
			cancel()
		})
		_, err := g.Try(ctx)
		if !errors.Is(err, context.Canceled) || Unsent(err) {
			t.Errorf("Try = %v, want context.Canceled, and that it may be stored", err)
		}
		wg.Wait()
		g.End()
		closed := make(chan error, 1)
		wg.Go(func() { closed <- s.Close(context.Background()) })
		eventually(t, "Close has begun", func() bool { return s.life.now() == stateClosed })
		select {
		case err := <-closed:
			t.Errorf("Close = %v before the request was answered", err)
		case <-s.Stopped():
			t.Error("stopped before the request was answered")
		default:
		}
		close(release)
		if err := receive(t, closed, "Close"); err != nil {
			t.Errorf("Close = %v", err)
		}
		receive(t, s.Stopped(), "word that Close does not wait any more")
		wg.Wait()
	})
	t.Run("ctx done before is nothing sent", func(t *testing.T) {
		t.Parallel()
		g := begin(t, startSender(t, newFakeBroker(t)), "t")
		defer g.End()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Try(ctx); !errors.Is(err, context.Canceled) || !Unsent(err) {
			t.Errorf("Try = %v, want context.Canceled, and nothing sent", err)
		}
	})
	t.Run("names the broker that does not answer", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		b.answer(remoting.ResSystemBusy, "later")
		g := begin(t, startSender(t, b), "t")
		defer g.End()
		if _, err := g.Try(t.Context()); !errors.Is(err, txmq.ErrBrokerUnreachable) || !Unsent(err) || !strings.Contains(err.Error(), `broker "broker-a", queue 0`) {
			t.Errorf("Try = %v, want ErrBrokerUnreachable with the broker", err)
		}
	})
	t.Run("a key whose broker is down takes no other", func(t *testing.T) {
		t.Parallel()
		up := newFakeBroker(t)
		up.answer(remoting.ResSuccess, "")
		up.others = []string{"127.0.0.1:1"}
		s := startSender(t, up)
		down := 0
		for i := range 20 {
			m := message("t", "e")
			m.ShardingKey = fmt.Sprint(i)
			g, err := s.Begin(m, nil)
			if err != nil {
				t.Fatal(err)
			}
			first, err := g.Try(t.Context())
			for range 2 {
				again, errAgain := g.Try(t.Context())
				if (err == nil) != (errAgain == nil) || first.BrokerName != again.BrokerName {
					t.Errorf("key %d: Try = %+v, %v and then %+v, %v; want the same queue", i, first, err, again, errAgain)
				}
			}
			g.End()
			if err != nil {
				down++
				if !errors.Is(err, txmq.ErrBrokerUnreachable) || !Unsent(err) || !strings.Contains(err.Error(), "127.0.0.1:1") {
					t.Errorf("key %d: Try = %v, want ErrBrokerUnreachable with the address, and nothing sent", i, err)
				}
			}
		}
		if down == 0 || down == 20 {
			t.Errorf("%d of 20 keys belong to the broker that is down, want some", down)
		}
	})
	t.Run("no route is nothing sent", func(t *testing.T) {
		t.Parallel()
		g := begin(t, startSender(t, newFakeBroker(t)), "other")
		defer g.End()
		if _, err := g.Try(t.Context()); !errors.Is(err, txmq.ErrRefused) || !Unsent(err) {
			t.Errorf("Try = %v, want ErrRefused, and nothing sent", err)
		}
		g.s.cfg.Broker = at("127.0.0.1:1") // whom we ask about the missing route
		if _, err := g.Try(t.Context()); !errors.Is(err, txmq.ErrBrokerUnreachable) || !Unsent(err) {
			t.Errorf("Try = %v, want ErrBrokerUnreachable, and nothing sent", err)
		}
	})
	t.Run("a queue whose broker has left is named", func(t *testing.T) {
		t.Parallel()
		g := begin(t, startSender(t, newFakeBroker(t)), "t")
		defer g.End()
		g.way.last.Store(&primitive.MessageQueue{Topic: "t", BrokerName: "broker-x", QueueId: 3})
		_, err := g.outcome(t.Context(), "t", sendOutcome{err: errors.New("topic=t route info not found")})
		if !errors.Is(err, txmq.ErrBrokerUnreachable) || !Unsent(err) || !strings.Contains(err.Error(), `"broker-x"`) || !strings.Contains(err.Error(), "queue 3") {
			t.Errorf("outcome = %v, want ErrBrokerUnreachable with broker and queue, and nothing sent", err)
		}
	})
	t.Run("Close waits for a sending between its tries, up to its ctx", func(t *testing.T) {
		t.Parallel()
		b := newFakeBroker(t)
		b.answer(remoting.ResSuccess, "")
		s := startSender(t, b)
		g := begin(t, s, "t")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close = %v, want it to say that a send is left", err)
		}
		receive(t, s.Stopped(), "word that Close does not wait any more")
		if _, err := g.Try(t.Context()); !errors.Is(err, txmq.ErrClosed) || !Unsent(err) {
			t.Errorf("Try = %v, want ErrClosed", err)
		}
		g.End()
		if _, err := s.Begin(message("t", "e"), nil); !errors.Is(err, txmq.ErrClosed) {
			t.Errorf("Begin = %v, want ErrClosed", err)
		}
	})
}
