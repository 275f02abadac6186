package wireproxy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a name server and a broker in one: it answers a route request with
// the address of the broker, EndTransaction never, and every other request
// with the request's body. It keeps the requests of one connection in order.
type server struct {
	addr   string
	broker string        // in the route
	conn   chan net.Conn // every new connection, for requests to the client
	ended  chan struct{} // one for every connection that is over

	mu   sync.Mutex
	seen []remoting.Frame // everything that arrived
}

// newServer starts a server whose route leads to broker, or to itself.
func newServer(t *testing.T, broker string) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	s := &server{addr: addr, broker: cmp.Or(broker, addr), conn: make(chan net.Conn, 100), ended: make(chan struct{}, 100)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.conn <- conn
			wg.Go(func() {
				s.serve(conn)
				s.ended <- struct{}{}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait() // the clients, or the proxy, closed their connections before
	})
	return s
}

func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		req, err := remoting.Read(conn, remoting.MaxFrame)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, req)
		s.mu.Unlock()
		if req.IsResponse() || req.IsOneWay() || req.Code == remoting.EndTransaction {
			continue
		}
		res := req.Reply(remoting.ResSuccess)
		res.Body = req.Body
		switch req.Code {
		case remoting.GetRouteInfoByTopic:
			res.Body = fmt.Appendf(nil, `{"brokerDatas":[{"brokerAddrs":{0:%q},"brokerName":"broker-a","cluster":"c"}],"queueDatas":[]}`, s.broker)
			if req.ExtFields["topic"] == "odd" {
				res.Body = []byte(`{"brokerDatas":`)
			}
		case remoting.GetBrokerClusterInfo:
			res.Body = fmt.Appendf(nil, `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:%q}}}}`, s.broker)
		}
		if res.Write(conn) != nil {
			return
		}
	}
}

// bodies are the bodies of all that arrived with the code, in order.
func (s *server) bodies(code int) (got []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.seen {
		if f.Code == code {
			got = append(got, string(f.Body))
		}
	}
	return got
}

// client is one connection, with the opaque numbers that the test chooses.
type client struct {
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, addr string) client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return client{t, conn}
}

func (c client) send(code int, opaque int32, body string) {
	c.t.Helper()
	c.sendFrame(remoting.Frame{Code: code, Opaque: opaque, Body: []byte(body), Encoding: remoting.Binary})
}

func (c client) sendFrame(f remoting.Frame) {
	c.t.Helper()
	if err := f.Write(c.conn); err != nil {
		c.t.Fatalf("send %d: %v", f.Code, err)
	}
}

// want reads the next frame, and checks which request it answers.
func (c client) want(opaque int32, body string) {
	c.t.Helper()
	f, err := remoting.Read(c.conn, remoting.MaxFrame)
	if err != nil {
		c.t.Fatalf("read: %v, want the answer to %q", err, body)
	}
	if f.Opaque != opaque || string(f.Body) != body {
		c.t.Fatalf("read opaque %d, body %q, want %d, %q", f.Opaque, f.Body, opaque, body)
	}
}

func (c client) wantCut() {
	c.t.Helper()
	f, err := remoting.Read(c.conn, remoting.MaxFrame)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatalf("read %+v, %v, want a cut connection", f, err)
	}
}

// setup is a server behind a proxy.
func setup(t *testing.T) (*wireproxy.Proxy, *server) {
	t.Helper()
	s := newServer(t, "")
	p, err := wireproxy.Start(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close) // before the server's
	return p, s
}

// soon bounds a wait that ends at once unless something is broken.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
