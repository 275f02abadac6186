package wireproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/txmq/txmq/internal/remoting"
)

// link joins one client connection to a server connection of its own.
type link struct {
	p      *Proxy
	server string
	front  func(addr string) (string, error) // where a broker's front listens
	cut    context.CancelFunc
	wg     sync.WaitGroup
	ends   [2]end // by the direction that leads to it

	mu      sync.Mutex
	pending map[ask]waiting
}

type end struct {
	mu   sync.Mutex // one writer at a time
	conn net.Conn
}

// ask names a request on its link.
type ask struct {
	dir    Dir
	opaque int32
}

// waiting is what to do with a reply. The zero value is nothing.
type waiting struct {
	fault   *Handle // LoseReply or DelayReply, or nil
	rewrite bool
}

// serve runs a link until either side or the proxy ends it.
func serve(run context.Context, p *Proxy, f *front, client net.Conn) {
	server, err := new(net.Dialer).DialContext(run, "tcp", f.server)
	if err != nil {
		_ = client.Close() // as a server that is down would look, one step later
		return
	}
	ctx, cut := context.WithCancel(run)
	l := &link{p: p, server: f.server, cut: cut, pending: map[ask]waiting{}}
	l.front = func(addr string) (string, error) {
		f, err := p.open(ctx, run, addr)
		if err != nil {
			return "", err
		}
		return f.ln.Addr().String(), nil
	}
	l.ends[ToServer].conn, l.ends[ToClient].conn = server, client
	l.wg.Go(func() {
		<-ctx.Done()
		_ = client.Close()
		_ = server.Close()
	})
	l.wg.Go(func() { l.pump(ctx, ToServer) })
	l.wg.Go(func() { l.pump(ctx, ToClient) })
	l.wg.Wait()
}

// pump carries frames one way until it cannot, and then cuts the link. A
// client that hangs up is passed on as such, and the server then closes: to
// cut at once could destroy what the server has not read yet.
func (l *link) pump(ctx context.Context, dir Dir) {
	from := bufio.NewReader(l.ends[dir.back()].conn)
	for {
		f, err := remoting.Read(from, remoting.MaxFrame)
		if err == nil {
			l.p.arrived(dir, f)
			err = l.pass(ctx, dir, f)
		}
		if errors.Is(err, remoting.ErrMalformed) || errors.As(err, new(*routeError)) {
			l.p.fail(err)
		}
		if err == nil {
			continue
		}
		if dir != ToServer || !errors.Is(err, io.EOF) || l.hangUp() != nil {
			l.cut()
		}
		return
	}
}

func (l *link) hangUp() error {
	conn, ok := l.ends[ToServer].conn.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return conn.CloseWrite()
}

func (l *link) pass(ctx context.Context, dir Dir, f remoting.Frame) error {
	if f.IsResponse() {
		return l.reply(ctx, dir, f)
	}
	return l.request(ctx, dir, f)
}

var errDisconnect = errors.New("disconnect")

func (l *link) request(ctx context.Context, dir Dir, f remoting.Frame) error {
	w := waiting{rewrite: f.Code == remoting.GetRouteInfoByTopic || f.Code == remoting.GetBrokerClusterInfo}
	h := l.p.take(l.server, f)
	if h == nil {
		l.expect(dir, f, w)
		return l.send(dir, f.Raw())
	}
	switch h.fault.Action {
	case DropRequest:
		h.hits.add()
		return nil
	case Disconnect:
		h.hits.add()
		return errDisconnect
	case Answer:
		h.hits.add()
		return l.answer(dir, f, h.fault)
	case Delay:
		l.expect(dir, f, w)
		l.later(ctx, h, dir, f.Raw())
		return nil
	case LoseReply, DelayReply:
		if !f.IsOneWay() {
			w.fault = h
			l.expect(dir, f, w)
			return l.send(dir, f.Raw())
		}
	case Pass:
	}
	l.expect(dir, f, w)
	err := l.send(dir, f.Raw())
	if err == nil {
		h.hits.add()
	}
	return err
}

// answer speaks for the other side.
func (l *link) answer(dir Dir, f remoting.Frame, fault Fault) error {
	if f.IsOneWay() {
		return nil
	}
	res := f.Reply(fault.Response)
	res.Remark = fault.Remark
	b, err := res.Append(nil)
	if err != nil {
		return err
	}
	return l.send(dir.back(), b)
}

func (l *link) reply(ctx context.Context, dir Dir, f remoting.Frame) error {
	w := l.settle(dir.back(), f)
	b := f.Raw()
	if w.rewrite && f.Code == remoting.ResSuccess && len(f.Body) > 0 {
		body, err := remoting.RewriteAddrs(f.Body, l.front)
		if err != nil {
			return &routeError{err}
		}
		f.Body = body
		if b, err = f.Append(nil); err != nil {
			return &routeError{err}
		}
	}
	if w.fault == nil {
		return l.send(dir, b)
	}
	if w.fault.fault.Action == DelayReply {
		l.later(ctx, w.fault, dir, b)
		return nil
	}
	w.fault.hits.add()
	return nil
}

// routeError is an answer whose addresses could not be replaced: passed on, it
// would lead the client around the proxy.
type routeError struct{ error }

func (e *routeError) Unwrap() error { return e.error }

// expect notes what to do with the reply to f, or forgets an older request
// with the same number that was never answered.
func (l *link) expect(dir Dir, f remoting.Frame, w waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w == (waiting{}) || f.IsOneWay() {
		delete(l.pending, ask{dir, f.Opaque})
		return
	}
	l.pending[ask{dir, f.Opaque}] = w
}

func (l *link) settle(dir Dir, f remoting.Frame) waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.pending[ask{dir, f.Opaque}]
	delete(l.pending, ask{dir, f.Opaque})
	return w
}

// later sends a frame when the fault lets go of it.
func (l *link) later(ctx context.Context, h *Handle, dir Dir, frame []byte) {
	h.hits.add()
	l.wg.Go(func() {
		if h.hold(ctx) && l.send(dir, frame) != nil {
			l.cut()
		}
	})
}

func (l *link) send(dir Dir, frame []byte) error {
	e := &l.ends[dir]
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.conn.Write(frame)
	return err
}
