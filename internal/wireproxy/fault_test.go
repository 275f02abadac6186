package wireproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

const (
	send = remoting.SendMessage
	beat = remoting.Heartbeat
)

func wantArrived(t *testing.T, s *server, code int, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.bodies(code)); diff != "" {
		t.Errorf("requests %d at the server (-want +got):\n%s", code, diff)
	}
}

func wantHits(t *testing.T, h *wireproxy.Handle, want int) {
	t.Helper()
	if got := h.Hits(); got != want {
		t.Errorf("Hits = %d, want %d", got, want)
	}
}

// The server answers in order, so the answer to a later request shows that
// none is coming for an earlier one.
func TestFaults(t *testing.T) {
	t.Parallel()

	t.Run("DropRequest swallows the request and keeps the connection", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.DropRequest, Count: 1})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, h.Wait(soon(t), 1))
		c.send(send, 2, "b")
		c.want(2, "b")
		wantArrived(t, s, send, "b")
		wantHits(t, h, 1)
	})

	t.Run("LoseReply lets the server work and swallows its reply", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.LoseReply, Count: 1})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, h.Wait(soon(t), 1))
		wantArrived(t, s, send, "a")
		c.send(send, 1, "b") // the number may come again
		c.want(1, "b")
		wantHits(t, h, 1)
	})

	t.Run("LoseReply of a one-way request passes it on", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.LoseReply})
		c := dial(t, p.NameServer())
		c.sendFrame(remoting.Frame{Code: send, Opaque: 1, Flag: remoting.FlagOneWay, Body: []byte("a")})
		must(t, h.Wait(soon(t), 1))
		c.send(beat, 1, "b")
		c.want(1, "b")
		wantArrived(t, s, send, "a")
	})

	t.Run("LoseReply of a request that is never answered leaves a later one alone", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.LoseReply})
		c := dial(t, p.NameServer())
		c.send(remoting.EndTransaction, 1, "a")
		c.send(beat, 1, "b")
		c.want(1, "b")
		wantArrived(t, s, remoting.EndTransaction, "a")
		wantHits(t, h, 0)
	})

	t.Run("Answer speaks for the server, which sees nothing", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{
			Code: send, Action: wireproxy.Answer, Count: 1, Response: remoting.ResSystemBusy, Remark: "later",
		})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		got, err := remoting.Read(c.conn, remoting.MaxFrame)
		must(t, err)
		if got.Opaque != 1 || got.Code != remoting.ResSystemBusy || got.Remark != "later" || len(got.Body) != 0 {
			t.Errorf("answer = %+v, want busy", got)
		}
		c.send(send, 2, "b")
		c.want(2, "b")
		wantArrived(t, s, send, "b")
		wantHits(t, h, 1)
	})

	t.Run("Answer to a one-way request is silence", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.Answer, Response: remoting.ResSystemBusy})
		c := dial(t, p.NameServer())
		c.sendFrame(remoting.Frame{Code: send, Opaque: 1, Flag: remoting.FlagOneWay, Body: []byte("a")})
		c.send(beat, 1, "b")
		c.want(1, "b")
		wantArrived(t, s, send)
		wantHits(t, h, 1)
	})

	t.Run("Delay holds one request until the channel closes and lets others by", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		until := make(chan struct{})
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.Delay, Until: until, For: time.Hour})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, h.Wait(soon(t), 1))
		c.send(beat, 2, "b")
		c.want(2, "b")
		wantArrived(t, s, send)
		close(until)
		c.want(1, "a")
		wantArrived(t, s, send, "a")
	})

	t.Run("Delay ends after its time", func(t *testing.T) {
		t.Parallel()
		p, _ := setup(t)
		p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.Delay, For: 20 * time.Millisecond})
		c := dial(t, p.NameServer())
		start := time.Now()
		c.send(send, 1, "a")
		c.want(1, "a")
		if took := time.Since(start); took < 20*time.Millisecond {
			t.Errorf("answer after %v, want 20ms at least", took)
		}
	})

	t.Run("DelayReply holds the reply until Remove", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.DelayReply})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, h.Wait(soon(t), 1))
		wantArrived(t, s, send, "a")
		c.send(beat, 2, "b")
		c.want(2, "b")
		h.Remove()
		h.Remove()
		c.want(1, "a")
	})

	t.Run("Disconnect cuts before the request arrives, later connections work", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.Disconnect, Count: 1})
		c := dial(t, p.NameServer())
		other := dial(t, p.NameServer())
		c.send(send, 1, "a")
		c.wantCut()
		wantHits(t, h, 1)
		other.send(send, 1, "b")
		other.want(1, "b")
		wantArrived(t, s, send, "b")
	})

	t.Run("Pass only counts", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		c.want(1, "a")
		must(t, h.Wait(soon(t), 1))
		wantArrived(t, s, send, "a")
	})

	t.Run("Close drops what is held", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.Delay})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, h.Wait(soon(t), 1))
		p.Close()
		c.wantCut()
		wantArrived(t, s, send)
	})
}

func TestFaultChoice(t *testing.T) {
	t.Parallel()

	t.Run("Skip, then Count, then over", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.DropRequest, Skip: 1, Count: 2})
		c := dial(t, p.NameServer())
		for i, body := range []string{"a", "b", "c", "d"} {
			c.send(send, int32(i), body)
		}
		c.want(0, "a")
		c.want(3, "d")
		wantArrived(t, s, send, "a", "d")
		wantHits(t, h, 2)
	})

	t.Run("Code, Match and Server all have to fit", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		match := func(f remoting.Frame) bool { return string(f.Body) == "a" }
		h := p.Inject(wireproxy.Fault{Code: send, Match: match, Server: s.addr, Action: wireproxy.DropRequest})
		p.Inject(wireproxy.Fault{Server: "elsewhere:1", Action: wireproxy.Disconnect})
		c := dial(t, p.NameServer())
		c.send(beat, 1, "a")
		c.send(send, 2, "a")
		c.send(send, 3, "b")
		c.want(1, "a")
		c.want(3, "b")
		wantHits(t, h, 1)
	})

	t.Run("the first fault wins, Remove gives way to the next", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		first := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.DropRequest})
		second := p.Inject(wireproxy.Fault{Action: wireproxy.LoseReply})
		c := dial(t, p.NameServer())
		c.send(send, 1, "a")
		must(t, first.Wait(soon(t), 1))
		first.Remove()
		c.send(send, 2, "b")
		must(t, second.Wait(soon(t), 1))
		second.Remove()
		c.send(send, 3, "c")
		c.want(3, "c")
		wantArrived(t, s, send, "b", "c")
		wantHits(t, first, 1)
		wantHits(t, second, 1)
	})

	t.Run("equal opaque numbers of two clients stay apart", func(t *testing.T) {
		t.Parallel()
		p, _ := setup(t)
		match := func(f remoting.Frame) bool { return string(f.Body) == "lost" }
		h := p.Inject(wireproxy.Fault{Code: send, Match: match, Action: wireproxy.LoseReply})
		c1, c2 := dial(t, p.NameServer()), dial(t, p.NameServer())
		for range 50 {
			c1.send(send, 7, "lost")
			c2.send(send, 7, "kept")
			c1.send(beat, 8, "one")
			c2.want(7, "kept")
			c1.want(8, "one")
		}
		wantHits(t, h, 50)
	})

	t.Run("Wait ends with its context and says how far it came", func(t *testing.T) {
		t.Parallel()
		p, _ := setup(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		h := p.Inject(wireproxy.Fault{Code: send})
		if err := h.Wait(ctx, 1); !errors.Is(err, cause) {
			t.Errorf("Wait = %v, want %v", err, cause)
		}
		if err := p.WaitCount(ctx, send, 1); !errors.Is(err, cause) {
			t.Errorf("WaitCount = %v, want %v", err, cause)
		}
	})
}

// A check-back comes from the broker, one-way; the client's answer is a
// request of its own. Some requests of brokers (307, 309) are answered.
func TestFaultsOnRequestsOfTheBroker(t *testing.T) {
	t.Parallel()
	check := func(opaque int32, body string) remoting.Frame {
		return remoting.Frame{Code: remoting.CheckTransactionState, Opaque: opaque, Flag: remoting.FlagOneWay, Body: []byte(body)}
	}

	t.Run("a check-back is dropped, the next one is not", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: remoting.CheckTransactionState, Action: wireproxy.DropRequest, Count: 1})
		c := dial(t, p.NameServer())
		broker := client{t, <-s.conn}
		broker.sendFrame(check(1, "a"))
		must(t, h.Wait(soon(t), 1))
		broker.sendFrame(check(2, "b"))
		c.want(2, "b")
		if to, back := p.CountDir(wireproxy.ToClient, 39), p.CountDir(wireproxy.ToServer, 39); to != 2 || back != 0 {
			t.Errorf("CountDir = %d to the client, %d to the server, want 2, 0", to, back)
		}
	})

	t.Run("the client's reply to the broker is lost, not the broker's with the same number", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		h := p.Inject(wireproxy.Fault{Code: remoting.ConsumeMessageDirectly, Action: wireproxy.LoseReply})
		c := dial(t, p.NameServer())
		broker := client{t, <-s.conn}
		broker.sendFrame(remoting.Frame{Code: remoting.ConsumeMessageDirectly, Opaque: 5, Body: []byte("run")})
		c.want(5, "run")
		c.send(beat, 5, "b")
		c.want(5, "b")
		c.sendFrame(remoting.Frame{Code: remoting.ResSuccess, Opaque: 5, Flag: remoting.FlagResponse, Body: []byte("done")})
		must(t, h.Wait(soon(t), 1))
		c.send(beat, 6, "c")
		c.want(6, "c")
		wantArrived(t, s, remoting.ResSuccess)
	})
}
