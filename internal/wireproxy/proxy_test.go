package wireproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

func TestRouteLeadsThroughTheProxy(t *testing.T) {
	t.Parallel()
	p, s := setup(t)
	brokers, err := remoting.Brokers(soon(t), p.NameServer(), "orders")
	must(t, err)
	if len(brokers) != 1 || brokers[0].Addr == s.addr {
		t.Fatalf("Brokers = %v, want one front instead of %s", brokers, s.addr)
	}
	again, err := remoting.Brokers(soon(t), p.NameServer(), "orders")
	must(t, err)
	if diff := cmp.Diff(brokers, again); diff != "" {
		t.Errorf("Brokers changed (-first +second):\n%s", diff)
	}
	must(t, remoting.CreateTopic(soon(t), brokers[0].Addr, "orders", 4, 6))
	if got := p.Count(remoting.UpdateAndCreateTopic); got != 1 {
		t.Errorf("Count = %d, want the request to the broker's front", got)
	}

	res, err := remoting.Call(soon(t), p.NameServer(), remoting.Request(remoting.GetBrokerClusterInfo, nil, nil))
	must(t, err)
	if body := string(res.Body); strings.Contains(body, s.addr) || !strings.Contains(body, brokers[0].Addr) {
		t.Errorf("cluster info = %s, want %s in it", body, brokers[0].Addr)
	}
}

func TestTwoServers(t *testing.T) {
	t.Parallel()
	broker := newServer(t, "")
	nameServer := newServer(t, broker.addr)
	p, err := wireproxy.Start(t.Context(), nameServer.addr)
	must(t, err)
	t.Cleanup(p.Close)
	brokers, err := remoting.Brokers(soon(t), p.NameServer(), "orders")
	must(t, err)
	c := dial(t, brokers[0].Addr)
	c.send(send, 1, "a")
	c.want(1, "a")
	wantArrived(t, broker, send, "a")
	wantArrived(t, nameServer, send)
	if got := p.Conns()[broker.addr]; got != 1 {
		t.Errorf("Conns = %v, want 1 at the broker", p.Conns())
	}
}

func TestRouteThatCannotBeReadCutsTheClient(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	if _, err := remoting.Brokers(soon(t), p.NameServer(), "odd"); !errors.Is(err, io.EOF) {
		t.Errorf("Brokers = %v, want a cut connection", err)
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "broker addresses") {
		t.Errorf("Err = %v, want the reason", err)
	}
}

func TestBytesThatAreNoFrame(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	c := dial(t, p.NameServer())
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.wantCut()
	if err := p.Err(); !errors.Is(err, remoting.ErrMalformed) {
		t.Errorf("Err = %v, want %v", err, remoting.ErrMalformed)
	}
}

// Odd but valid bytes reach the server as they are.
func TestVerbatim(t *testing.T) {
	t.Parallel()
	p, s := setup(t)
	raw := "\x00\x00\x00\x4f\x00\x00\x00\x49" + `{"opaque":3, "code":34,"flag":0,"language":"GO", "odd":[1],"version": 9 }` + "hi"
	c := dial(t, p.NameServer())
	if _, err := io.WriteString(c.conn, raw); err != nil {
		t.Fatal(err)
	}
	c.want(3, "hi")
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := string(s.seen[0].Raw()); got != raw {
		t.Errorf("server read %q, want %q", got, raw)
	}
}

func TestObserveAndCount(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	p.Inject(wireproxy.Fault{Action: wireproxy.DropRequest, Count: 1})
	type seen struct {
		Dir  wireproxy.Dir
		Body string
	}
	var (
		mu  sync.Mutex
		got []seen
	)
	stop := p.Observe(func(d wireproxy.Dir, f remoting.Frame) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{d, string(f.Body)})
	})
	c := dial(t, p.NameServer())
	c.send(send, 1, "a")
	must(t, p.WaitCount(soon(t), send, 1))
	mu.Lock()
	if diff := cmp.Diff([]seen{{wireproxy.ToServer, "a"}}, got); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	mu.Unlock()
	c.send(send, 2, "b")
	c.want(2, "b")
	stop()
	c.send(send, 3, "c")
	c.want(3, "c")
	mu.Lock()
	defer mu.Unlock()
	want := []seen{{wireproxy.ToServer, "a"}, {wireproxy.ToServer, "b"}, {wireproxy.ToClient, "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	if p.Count(send) != 3 || p.Count(beat) != 0 || p.Count(remoting.ResSuccess) != 0 {
		t.Errorf("Count = %d, want 3 requests and no response", p.Count(send))
	}
	if s := wireproxy.ToServer.String() + ", " + wireproxy.ToClient.String(); s != "to server, to client" {
		t.Errorf("String = %s", s)
	}
}

func TestConnectionsEndTogether(t *testing.T) {
	t.Parallel()

	t.Run("what a client sent before it hung up arrives", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		c := dial(t, p.NameServer())
		c.send(send, 1, strings.Repeat("x", 1<<20))
		must(t, c.conn.Close())
		<-s.ended
		if got := s.bodies(send); len(got) != 1 || len(got[0]) != 1<<20 {
			t.Errorf("%d requests arrived, want the large one", len(got))
		}
	})

	t.Run("a client that has said all still gets its answers", func(t *testing.T) {
		t.Parallel()
		p, _ := setup(t)
		c := dial(t, p.NameServer())
		body := strings.Repeat("x", 1<<20)
		c.send(send, 1, body)
		must(t, c.conn.(*net.TCPConn).CloseWrite())
		c.want(1, body)
		c.wantCut()
	})

	t.Run("a server that hangs up cuts its client", func(t *testing.T) {
		t.Parallel()
		p, s := setup(t)
		c := dial(t, p.NameServer())
		must(t, (<-s.conn).Close())
		c.wantCut()
	})

	t.Run("a server that is down cuts its client and is no fault of the proxy", func(t *testing.T) {
		t.Parallel()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		addr := ln.Addr().String()
		must(t, ln.Close())
		p, err := wireproxy.Start(t.Context(), addr)
		must(t, err)
		defer p.Close()
		dial(t, p.NameServer()).wantCut()
		must(t, p.Err())
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	p, s := setup(t)
	c := dial(t, p.NameServer())
	c.send(send, 1, "a")
	c.want(1, "a")
	if got := p.Conns()[s.addr]; got != 1 {
		t.Errorf("Conns = %d, want 1", got)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(p.Close)
	}
	wg.Wait()
	c.wantCut()
	if got := p.Conns()[s.addr]; got != 0 {
		t.Errorf("Conns after Close = %d, want 0", got)
	}
	if conn, err := net.Dial("tcp", p.NameServer()); err == nil {
		_ = conn.Close()
		t.Error("the front still listens after Close")
	}
	must(t, p.Err())
}

func TestStartWithAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := wireproxy.Start(ctx, "127.0.0.1:1"); err == nil {
		p.Close()
		t.Error("Start = nil, want the context's error")
	}
}

// Many clients at once, with faults coming and going: run it with -race.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	t.Run("all", func(t *testing.T) {
		for range 8 {
			t.Run("client", func(t *testing.T) {
				t.Parallel()
				c := dial(t, p.NameServer())
				body := strings.Repeat("b", 1000)
				for i := range int32(200) {
					c.send(send, i, body)
					c.want(i, body)
				}
			})
		}
		t.Run("faults", func(t *testing.T) {
			t.Parallel()
			for range 100 {
				h := p.Inject(wireproxy.Fault{Code: send, Action: wireproxy.DelayReply})
				stop := p.Observe(func(wireproxy.Dir, remoting.Frame) {})
				_ = p.Conns()
				h.Remove()
				stop()
			}
		})
	})
	if got := p.Count(send); got != 1600 {
		t.Errorf("Count = %d, want 1600", got)
	}
}
