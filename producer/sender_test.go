package producer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
)

// script is the broker's side of a Sender: it answers one try after another as
// told, and with success after the last word.
type script struct {
	answers []func(ctx context.Context) error
	stopped chan struct{}

	at    []time.Time
	seen  []txmq.Message
	props []map[string]string
	ended int
}

func (s *script) Start(context.Context) error { return nil }
func (s *script) Stopped() <-chan struct{}    { return s.stopped }

func (s *script) Close(context.Context) error {
	close(s.stopped)
	return nil
}

func (s *script) Begin(m txmq.Message, props map[string]string) (tries, error) {
	return &scripted{s, m, props}, nil
}

type scripted struct {
	s     *script
	m     txmq.Message
	props map[string]string
}

func (g *scripted) End() { g.s.ended++ }

func (g *scripted) Try(ctx context.Context) (rocketmq.Sent, error) {
	n := len(g.s.at)
	g.s.at, g.s.seen, g.s.props = append(g.s.at, time.Now()), append(g.s.seen, g.m), append(g.s.props, g.props)
	if n < len(g.s.answers) {
		if err := g.s.answers[n](ctx); err != nil {
			return rocketmq.Sent{}, err
		}
	}
	return rocketmq.Sent{MsgID: fmt.Sprint(n), BrokerName: "a", QueueID: 1, QueueOffset: 7}, nil
}

func (s *script) pauses() (list []time.Duration) {
	for i := 1; i < len(s.at); i++ {
		list = append(list, s.at[i].Sub(s.at[i-1]))
	}
	return list
}

// always answers so; dial errors are those of a broker that is down.
func always(err error) func(context.Context) error { return func(context.Context) error { return err } }

var (
	errTimeout = fmt.Errorf("%w: request timeout", txmq.ErrBrokerUnreachable)
	errDial    = fmt.Errorf("%w: %w", txmq.ErrBrokerUnreachable, &net.OpError{Op: "dial", Err: errors.New("connection refused")})
	errRefused = fmt.Errorf("%w: too large", txmq.ErrRefused)
	errFlush   = fmt.Errorf("%w: flush to disk timed out", txmq.ErrNotDurable)
)

func scriptedSender(t *testing.T, change func(*SenderConfig), answers ...error) (*Sender, *script) {
	t.Helper()
	s := &script{stopped: make(chan struct{})}
	for _, a := range answers {
		s.answers = append(s.answers, always(a))
	}
	cfg := SenderConfig{Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "g"}
	if change != nil {
		change(&cfg)
	}
	p, err := newSender(cfg, func(rocketmq.SenderConfig) (plain, error) { return s, nil })
	must(t, err)
	return p, s
}

func TestSendPauses(t *testing.T) {
	t.Parallel()
	between := func(t *testing.T, pauses []time.Duration, want ...time.Duration) {
		t.Helper()
		if len(pauses) != len(want) {
			t.Fatalf("pauses = %v, want about %v", pauses, want)
		}
		for i, p := range pauses {
			if p < want[i]*8/10 || p > want[i]*12/10 {
				t.Errorf("pause %d = %v, want %v ±20 %%", i+1, p, want[i])
			}
		}
	}
	busy := slices.Repeat([]error{errTimeout}, 20)

	t.Run("grow by two from Min", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p, s := scriptedSender(t, func(c *SenderConfig) { c.Retries = 5 }, busy[:5]...)
			placed, err := p.Send(t.Context(), message("e", "x"))
			must(t, err)
			between(t, s.pauses(), 200*time.Millisecond, 400*time.Millisecond, 800*time.Millisecond, 1600*time.Millisecond, 3200*time.Millisecond)
			if want := (Placed{EventID: "e", MsgID: "5", BrokerName: "a", QueueID: 1, QueueOffset: 7, Tries: 6}); placed != want {
				t.Errorf("Send = %+v, want %+v", placed, want)
			}
		})
	})
	t.Run("end at Max, and after the last retry", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p, s := scriptedSender(t, func(c *SenderConfig) {
				c.Retries, c.Backoff = 4, Backoff{Min: time.Second, Max: time.Second}
			}, busy...)
			_, err := p.Send(t.Context(), message("e", "x"))
			wantError(t, err, txmq.ErrBrokerUnreachable)
			for _, pause := range s.pauses() {
				if pause > time.Second {
					t.Errorf("pause = %v, want 1s at most", pause)
				}
			}
			if len(s.at) != 5 {
				t.Errorf("%d tries, want 5", len(s.at))
			}
		})
	})
	t.Run("are not the same for everybody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			seen := map[time.Duration]bool{}
			for range 20 {
				p, s := scriptedSender(t, nil, errTimeout)
				_, err := p.Send(t.Context(), message("e", "x"))
				must(t, err)
				seen[s.pauses()[0]] = true
			}
			if len(seen) < 2 {
				t.Error("20 senders pause for the same time")
			}
		})
	})
	t.Run("are none without retries", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p, s := scriptedSender(t, func(c *SenderConfig) { c.Retries = -1 }, busy...)
			_, err := p.Send(t.Context(), message("e", "x"))
			wantError(t, err, txmq.ErrBrokerUnreachable)
			if len(s.at) != 1 {
				t.Errorf("%d tries, want 1", len(s.at))
			}
		})
	})
}

// TestSendSaysWhatIsKnown: an error that is not ErrMayBeStored is a promise
// that the message will never come.
func TestSendSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	code := func(n int) error {
		return fmt.Errorf("%w: %w", txmq.ErrBrokerUnreachable, &rocketmq.CodeError{Code: n})
	}
	busy, system := code(remoting.ResSystemBusy), code(remoting.ResSystemError)
	tests := []struct {
		name    string
		answers []error
		want    []error // all of them
		tries   int
		maybe   bool
	}{
		{"stored at once", nil, nil, 1, false},
		{"busy, then stored", []error{busy, busy}, nil, 3, false},
		{"busy to the end", []error{busy, busy, busy}, []error{txmq.ErrBrokerUnreachable}, 3, false},
		{"down to the end", []error{errDial, errDial, errDial}, []error{txmq.ErrBrokerUnreachable}, 3, false},
		{"one answer lost", []error{errDial, errTimeout, errDial}, []error{txmq.ErrBrokerUnreachable}, 3, true},
		{"a system error may come after the storing", []error{system, errDial, errDial}, []error{txmq.ErrBrokerUnreachable}, 3, true},
		{"refused", []error{errRefused}, []error{txmq.ErrRefused}, 1, false},
		{"refused after an answer was lost", []error{errTimeout, errRefused}, []error{txmq.ErrRefused}, 2, true},
		{"not durable, then durable", []error{errFlush}, nil, 2, false},
		{"never durable", []error{errFlush, errFlush, errFlush}, []error{txmq.ErrNotDurable}, 3, true},
		{"closed", []error{txmq.ErrClosed}, []error{txmq.ErrClosed}, 1, false},
		{"something else is not tried again", []error{errors.New("odd")}, nil, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				p, s := scriptedSender(t, func(c *SenderConfig) { c.Observe = seen.observe }, tt.answers...)
				placed, err := p.Send(t.Context(), message("e", "x"))
				for _, want := range tt.want {
					wantError(t, err, want)
				}
				fails := len(tt.want) > 0 || tt.maybe
				if (err != nil) != fails || errors.Is(err, txmq.ErrMayBeStored) != tt.maybe {
					t.Errorf("Send = %v, want an error %v, that it may be stored %v", err, fails, tt.maybe)
				}
				if err != nil && !tt.maybe && !strings.Contains(err.Error(), "not stored") {
					t.Errorf("Send = %v, want it said that it is not stored", err)
				}
				if len(s.at) != tt.tries || placed.Tries != tt.tries || placed.EventID != "e" || (placed.MsgID != "") == fails {
					t.Errorf("Send = %+v after %d tries, want %d", placed, len(s.at), tt.tries)
				}
				if s.ended != 1 {
					t.Errorf("End was called %d times, want once", s.ended)
				}
				wantSent(t, &seen, placed, err)
			})
		})
	}
}

func wantSent(t *testing.T, seen *recorder, placed Placed, err error) {
	t.Helper()
	if len(seen.events) != 1 {
		t.Fatalf("events = %+v, want one", seen.events)
	}
	got, ok := seen.events[0].(txmq.Sent)
	if !ok || got.EventID != placed.EventID || got.MsgID != placed.MsgID || got.Tries != placed.Tries ||
		got.Topic != "paid" || (got.Err == nil) != (err == nil) || err != nil && !errors.Is(err, got.Err) {
		t.Errorf("event = %+v, want what Send said: %+v, %v", got, placed, err)
	}
}

func TestSendAndContext(t *testing.T) {
	t.Parallel()
	t.Run("done before", func(t *testing.T) {
		t.Parallel()
		p, s := scriptedSender(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		placed, err := p.Send(ctx, message("e", "x"))
		wantError(t, err, context.Canceled)
		if errors.Is(err, txmq.ErrMayBeStored) || len(s.at) != 0 || placed.Tries != 0 {
			t.Errorf("Send = %+v, %v after %d tries, want none", placed, err, len(s.at))
		}
	})
	for name, x := range map[string]struct {
		answer error
		maybe  bool
	}{"not stored so far": {errDial, false}, "may be stored": {errTimeout, true}} {
		t.Run("done in a pause, "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s := scriptedSender(t, nil, x.answer, x.answer, x.answer)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				placed, err := p.Send(ctx, message("e", "x"))
				wantError(t, err, context.DeadlineExceeded)
				wantError(t, err, txmq.ErrBrokerUnreachable) // the last answer is in it
				if errors.Is(err, txmq.ErrMayBeStored) != x.maybe || placed.Tries != 1 || len(s.at) != 1 {
					t.Errorf("Send = %+v, %v; want one try, and that it may be stored: %v", placed, err, x.maybe)
				}
				if took := time.Since(began); took != 100*time.Millisecond {
					t.Errorf("Send took %v, want to end with ctx", took)
				}
			})
		})
	}
	t.Run("closed in a pause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p, s := scriptedSender(t, nil, errTimeout, errTimeout, errTimeout)
			time.AfterFunc(100*time.Millisecond, func() { must(t, p.Close(context.Background())) })
			_, err := p.Send(t.Context(), message("e", "x"))
			wantError(t, err, txmq.ErrClosed)
			wantError(t, err, txmq.ErrMayBeStored)
			if len(s.at) != 1 {
				t.Errorf("%d tries, want 1", len(s.at))
			}
		})
	})
}

func TestSendKeepsOneIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := scriptedSender(t, nil, errTimeout, errTimeout)
		m := message("", "x")
		m.ShardingKey, m.DelayLevel = "k", 3 // a delay is for plain messages
		placed, err := p.Send(t.Context(), m)
		must(t, err)
		id, err := uuid.Parse(placed.EventID)
		if err != nil || id.Version() != 7 {
			t.Errorf("event ID = %q, want a UUIDv7", placed.EventID)
		}
		for i := range s.seen {
			if s.seen[i].EventID != placed.EventID || s.props[i][txmq.PropertyBorn] != s.props[0][txmq.PropertyBorn] || s.seen[i].ShardingKey != "k" {
				t.Errorf("try %d: %+v %v, want the first one's identity", i, s.seen[i], s.props[i])
			}
		}
		if s.props[0][txmq.PropertyBorn] != fmt.Sprint(s.at[0].UnixMilli()) {
			t.Errorf("born %s, want %d", s.props[0][txmq.PropertyBorn], s.at[0].UnixMilli())
		}
		again, err := p.Send(t.Context(), m)
		must(t, err)
		if again.EventID == placed.EventID {
			t.Error("two messages have one event ID")
		}
	})
}

func TestSenderConfig(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int{0: DefaultRetries, -1: 0, 16: 16} {
		var got rocketmq.SenderConfig
		s, err := newSender(SenderConfig{Retries: given, Group: "g"}, func(c rocketmq.SenderConfig) (plain, error) { got = c; return nil, nil })
		must(t, err)
		if s.cfg.Retries != want || got.Retries != 0 || got.SendTimeout != DefaultSendTimeout || got.Logger != nil || s.cfg.Drain != DefaultDrain {
			t.Errorf("Retries %d gives %+v and %+v, want %d of ours and none of the client's", given, s.cfg, got, want)
		}
	}
	if _, err := NewSender(SenderConfig{
		Broker: txmq.Broker{NameServers: []string{"127.0.0.1:9876"}}, Group: "g", Backoff: Backoff{Min: time.Minute},
	}); err != nil {
		t.Errorf("NewSender = %v, want Max to follow Min", err)
	}
}
