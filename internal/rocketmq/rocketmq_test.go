package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clienterrors "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/hooks"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

func TestLevel(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{
		-time.Second: 1, 0: 1, time.Second: 1, time.Second + 1: 2, 5 * time.Second: 2, 6 * time.Second: 3,
		31 * time.Second: 5, 2 * time.Minute: 6, 10 * time.Minute: 14, 11 * time.Minute: 15,
		time.Hour: 17, 2 * time.Hour: 18, 200 * time.Hour: 18,
	} {
		if got := Level(d); got != want {
			t.Errorf("Level(%v) = %d, want %d", d, got, want)
		}
		if got := Delay(d); got < min(d, 2*time.Hour) || Level(got) != want {
			t.Errorf("Delay(%v) = %v, which is level %d, want %d", d, got, Level(got), want)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   error
		want error
		code int
	}{
		{errors.New("CODE: 13, DESC: the message is illegal"), txmq.ErrRefused, 13},
		{errors.New("CODE: 16, DESC: no permission"), txmq.ErrRefused, 16},
		{primitive.NewMQClientErr(17, "topic not exist"), txmq.ErrRefused, 17},
		{errors.New("CODE: 1, DESC: org.apache.rocketmq.acl.common.AclException: no"), txmq.ErrRefused, 1},
		{errors.New("CODE: 1, DESC: something went wrong"), txmq.ErrBrokerUnreachable, 1},
		{errors.New("CODE: 2, DESC: [TIMEOUT_CLEAN_QUEUE]broker busy"), txmq.ErrBrokerUnreachable, 2},
		{errors.New("CODE: 14, DESC: service not available now"), txmq.ErrBrokerUnreachable, 14},
		{clienterrors.ErrRequestTimeout, txmq.ErrBrokerUnreachable, 0},
		{errors.New("dial tcp 127.0.0.1:1: connect: connection refused"), txmq.ErrBrokerUnreachable, 0},
		{errors.New("the topic=t route info not found"), errNoRoute, 0},
		{errors.New("topic=t route info not found"), errNoRoute, 0},
		{clienterrors.ErrService, txmq.ErrClosed, 0},
		{clienterrors.ErrNotRunning, txmq.ErrClosed, 0},
	}
	for _, tt := range tests {
		got := classify(tt.in)
		if !errors.Is(got, tt.want) {
			t.Errorf("classify(%v) = %v, want it to be %v", tt.in, got, tt.want)
		}
		var code *CodeError
		if errors.As(got, &code) != (tt.code != 0) || code != nil && code.Code != tt.code {
			t.Errorf("classify(%v) = %v, want code %d", tt.in, got, tt.code)
		}
	}
	if classify(nil) != nil {
		t.Error("classify(nil) is an error")
	}
	e := newCodeError(13, strings.Repeat("ä", 500)+"\n\tat java.lang")
	if len(e.Remark) > maxRemark+3 || strings.Contains(e.Remark, "java") {
		t.Errorf("remark = %q, want one short line", e.Remark)
	}
}

func TestDurable(t *testing.T) {
	t.Parallel()
	for status, ok := range map[primitive.SendStatus]bool{
		primitive.SendOK: true, primitive.SendFlushDiskTimeout: false, primitive.SendFlushSlaveTimeout: false,
		primitive.SendSlaveNotAvailable: false, primitive.SendUnknownError: false,
	} {
		err := durable(&primitive.SendResult{Status: status}, txmq.ErrHalfNotDurable)
		if (err == nil) != ok || err != nil && !errors.Is(err, txmq.ErrHalfNotDurable) {
			t.Errorf("durable(%d) = %v, want ok %v", status, err, ok)
		}
	}
	if durable(nil, txmq.ErrHalfNotDurable) == nil {
		t.Error("durable(nil) = nil")
	}
}

func TestClientState(t *testing.T) {
	t.Parallel()
	for v, want := range map[txmq.Verdict]primitive.LocalTransactionState{
		txmq.Unknown: primitive.UnkonwnState, txmq.Commit: primitive.CommitMessageState,
		txmq.Rollback: primitive.RollbackMessageState, 99: primitive.UnkonwnState,
	} {
		if got := ClientState(v); got != want {
			t.Errorf("ClientState(%v) = %v, want %v", v, got, want)
		}
	}
}

func TestInstanceName(t *testing.T) {
	t.Parallel()
	if a, b := instanceName("g"), instanceName("g"); a == b || !strings.Contains(a, "#g#") || strings.Contains(a, "@") {
		t.Errorf("instance names %q and %q", a, b)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBridge()
	b.to.Store(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	secret := primitive.NewMessage("t", []byte("s3cret"))
	ext := &primitive.MessageExt{Message: primitive.Message{Topic: "t", Body: []byte("s3cret")}}
	b.Error("executeLocalTransaction but state unexpected", map[string]any{"message": secret, "localState": primitive.RollbackMessageState})
	b.Warning("consumeMessageCurrently error", map[string]any{
		"messages": []*primitive.MessageExt{ext}, "other": ext, "more": []*primitive.MessageExt{ext},
		"map": map[string]any{"x": ext}, "underlayError": errors.New("boom"), "raw": []byte("s3cret"),
	})
	b.Info("the queue", map[string]any{"MessageQueue": &primitive.MessageQueue{Topic: "t"}, "offset": int64(7), "gone": (*primitive.MessageQueue)(nil)})
	b.Debug("hidden", nil)
	b.Level("error")
	b.Warning("below", nil)
	b.Fatal("fatal does not end the process", nil)
	b.panicked("a bad day")
	got := out.String()
	for _, not := range []string{"s3cret", "hidden", "below"} {
		if strings.Contains(got, not) {
			t.Errorf("log has %q:\n%s", not, got)
		}
	}
	for _, want := range []string{
		`level=DEBUG msg="rocketmq client" client_says="executeLocalTransaction but state unexpected" localState=2`,
		`level=WARN msg="rocketmq client" client_says="consumeMessageCurrently error" underlayError=boom`,
		`level=DEBUG msg="rocketmq client" client_says="the queue" MessageQueue="MessageQueue [topic=t, brokerName=, queueId=0]" gone=nil offset=7`,
		`level=ERROR msg="rocketmq client" client_says="fatal does not end the process"`,
		`level=ERROR msg="rocketmq client panicked" panic="a bad day"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("log misses %q:\n%s", want, got)
		}
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	t.Run("in order", func(t *testing.T) {
		t.Parallel()
		l := newLife()
		if err := l.begin(); !errors.Is(err, txmq.ErrNotStarted) {
			t.Errorf("begin = %v, want ErrNotStarted", err)
		}
		bad := errors.New("bad")
		if err := l.start(func() error { return bad }); !errors.Is(err, bad) {
			t.Errorf("start = %v, want %v", err, bad)
		}
		if err := l.start(func() error { return nil }); err != nil {
			t.Errorf("start after a failed one = %v", err)
		}
		if err := l.start(func() error { return nil }); !errors.Is(err, errStartedBefore) {
			t.Errorf("second start = %v, want %v", err, errStartedBefore)
		}
		for range 2 {
			if err := l.close(t.Context(), func() error { return bad }); !errors.Is(err, bad) {
				t.Errorf("close = %v, want %v", err, bad)
			}
		}
		if err := l.begin(); !errors.Is(err, txmq.ErrClosed) {
			t.Errorf("begin = %v, want ErrClosed", err)
		}
		if err := l.start(func() error { return nil }); !errors.Is(err, txmq.ErrClosed) {
			t.Errorf("start = %v, want ErrClosed", err)
		}
	})
	t.Run("never started", func(t *testing.T) {
		t.Parallel()
		if err := newLife().close(t.Context(), func() error { panic("runs") }); err != nil {
			t.Errorf("close = %v, want nil", err)
		}
	})
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newLife()
			_ = l.start(func() error { return nil })
			_ = l.begin()
			l.also()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got := l.drain(ctx); got != 2 {
				t.Errorf("drain = %d, want 2", got)
			}
			l.end()
			go l.end()
			if got := l.drain(t.Context()); got != 0 {
				t.Errorf("drain = %d, want 0", got)
			}
		})
	})
}

func TestChecker(t *testing.T) {
	t.Parallel()
	running := func() *life {
		l := newLife()
		_ = l.start(func() error { return nil })
		return l
	}
	log := slog.New(slog.DiscardHandler)
	m := &primitive.MessageExt{MsgId: "m"}
	ask := func(l *life, f func(context.Context, *primitive.MessageExt) txmq.Verdict) txmq.Verdict {
		c := newChecker(l, f, time.Second, log)
		defer c.stop()
		return c.ask(m)
	}
	t.Run("answers", func(t *testing.T) {
		t.Parallel()
		if got := ask(running(), func(context.Context, *primitive.MessageExt) txmq.Verdict { return txmq.Commit }); got != txmq.Commit {
			t.Errorf("ask = %v, want commit", got)
		}
	})
	t.Run("B09 a panic is unknown", func(t *testing.T) {
		t.Parallel()
		got := ask(running(), func(context.Context, *primitive.MessageExt) txmq.Verdict { panic("boom") })
		if got != txmq.Unknown {
			t.Errorf("ask = %v, want unknown", got)
		}
	})
	t.Run("B15 a check after Close is unknown", func(t *testing.T) {
		t.Parallel()
		l := running()
		_ = l.close(t.Context(), func() error { return nil })
		got := ask(l, func(context.Context, *primitive.MessageExt) txmq.Verdict { panic("asked") })
		if got != txmq.Unknown {
			t.Errorf("ask = %v, want unknown", got)
		}
	})
	t.Run("B09 a hanging check is unknown in time, and only so many hang", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l, release := running(), make(chan struct{})
			c := newChecker(l, func(context.Context, *primitive.MessageExt) txmq.Verdict { <-release; return txmq.Commit }, time.Second, log)
			defer c.stop()
			for i := range maxStrayChecks + 1 {
				began := time.Now()
				if got := c.ask(m); got != txmq.Unknown {
					t.Errorf("ask = %v, want unknown", got)
				}
				want := time.Second
				if i == maxStrayChecks {
					want = 0
				}
				if took := time.Since(began); took != want {
					t.Errorf("check %d took %v, want %v", i, took, want)
				}
			}
			if got := l.drain(func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx }()); got != maxStrayChecks {
				t.Errorf("in flight = %d, want %d", got, maxStrayChecks)
			}
			close(release)
			if got := l.drain(t.Context()); got != 0 {
				t.Errorf("in flight = %d, want 0", got)
			}
			if got := c.ask(m); got != txmq.Commit {
				t.Errorf("ask = %v, want commit", got)
			}
		})
	})
}

func TestMarks(t *testing.T) {
	t.Parallel()
	q := primitive.MessageQueue{Topic: "t", BrokerName: "b", QueueId: 1}
	at := func(offset int64) *primitive.MessageExt {
		return &primitive.MessageExt{Message: primitive.Message{Queue: &q}, QueueOffset: offset}
	}
	m := newMarks()
	offsets := func(n int64) map[primitive.MessageQueue]int64 { return map[primitive.MessageQueue]int64{q: n} }
	m.begin(at(5))
	m.begin(at(6))
	m.end(at(6))
	if !m.reached(offsets(5)) || m.reached(offsets(4)) {
		t.Error("with 5 under way, 5 is what the client must have reached")
	}
	m.end(at(5))
	if m.reached(offsets(5)) || !m.reached(offsets(7)) {
		t.Error("with all over, 7 is what the client must have reached")
	}
	if !m.reached(nil) {
		t.Error("a queue that is given away holds Close up")
	}
}

func TestPulled(t *testing.T) {
	t.Parallel()
	c := &PushConsumer{life: newLife()}
	in := &hooks.FilterMessageContext{Msg: []*primitive.MessageExt{{}}}
	if got, err := c.pulled(in); len(got) != 1 || err != nil {
		t.Errorf("pulled = %v, %v; want the message", got, err)
	}
	_ = c.life.close(t.Context(), nil)
	if got, err := c.pulled(in); len(got) != 0 || err != nil {
		t.Errorf("pulled after Close = %v, %v; want nothing", got, err)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	c := &PushConsumer{cfg: PushConfig{Subscriptions: []Subscription{{Topic: "now"}}}}
	msg := func(topic, retry string) *primitive.MessageExt {
		m := &primitive.MessageExt{}
		m.Topic = topic
		m.WithProperty(primitive.PropertyRetryTopic, retry)
		return m
	}
	former := msg("%RETRY%g", "before")
	c.adopt(former)
	if got := former.GetProperty(primitive.PropertyRetryTopic); got != "now" {
		t.Errorf("RETRY_TOPIC = %q, want one that the client has a callback for", got)
	}
	if got := former.GetProperty(propertyFormerTopic); got != "before" {
		t.Errorf("former topic = %q, want before", got)
	}
	for _, m := range []*primitive.MessageExt{msg("%RETRY%g", "now"), msg("now", ""), msg("now", "before")} {
		c.adopt(m)
		if m.GetProperty(propertyFormerTopic) != "" {
			t.Errorf("message of %s is adopted", m.Topic)
		}
	}
}
