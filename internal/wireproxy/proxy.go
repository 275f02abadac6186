// Package wireproxy is a loopback proxy that stands between RocketMQ clients
// and real or in-process servers, understands their frames, and breaks chosen
// ones. Tests use it for lost requests, lost replies, delays and cut
// connections; the demo program shows them.
//
// It opens one front per server: the name server's at Start, a broker's when
// its address first appears in a route answer, which then names the front
// instead. A client that is given NameServer() sends all its traffic through.
//
//	p, err := wireproxy.Start(ctx, nameServer)
//	defer p.Close()
//	lost := p.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1})
//	... a transactional send to p.NameServer() ...
//	err = lost.Wait(ctx, 1) // its end-transaction is gone
//
// Invariants:
//   - Each client connection has a server connection of its own, so equal opaque numbers never mix.
//   - A frame that no fault takes and that holds no broker address passes byte for byte, in order.
//   - After Close no goroutine, listener or connection is left.
package wireproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/txmq/txmq/internal/remoting"
)

// Dir is the way that a frame goes.
type Dir int

// The two ways. "Server" is the name server or a broker.
const (
	ToServer Dir = iota
	ToClient
)

// String names the way.
func (d Dir) String() string { return [...]string{"to server", "to client"}[d] }

func (d Dir) back() Dir { return 1 - d }

// Proxy is a running proxy. All methods may be called at the same time.
type Proxy struct {
	nameServer *front
	cancel     context.CancelFunc
	wg         sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	err       error
	fronts    map[string]*front // by the server's address
	counts    map[key]*tally
	faults    []*Handle   // never changed in place
	observers []*observer // never changed in place
}

// front is the listener that stands for one server.
type front struct {
	server string
	ln     net.Listener
	conns  int // guarded by Proxy.mu
}

type key struct {
	dir  Dir
	code int
}

type observer struct{ see func(Dir, remoting.Frame) }

// Start opens the front of the name server, host:port; nothing is dialled
// before a client comes, so the server may be down. ctx bounds this call only:
// the proxy runs until Close.
func Start(ctx context.Context, nameServer string) (*Proxy, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Proxy{cancel: cancel, fronts: map[string]*front{}, counts: map[key]*tally{}}
	f, err := p.open(ctx, run, nameServer)
	if err != nil {
		cancel()
		return nil, err
	}
	p.nameServer = f
	return p, nil
}

// Close cuts every connection, lets go of held frames, and returns when all is
// gone. Calls after the first wait too. Not to be called from Match or Observe.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for _, f := range p.fronts {
		_ = f.ln.Close() // fails only when closed already
	}
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// NameServer is the address, ip:port, to give to clients.
func (p *Proxy) NameServer() string { return p.nameServer.ln.Addr().String() }

// Conns is the number of open client connections, by the address of the real
// server. Every server that has a front is in it.
func (p *Proxy) Conns() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[string]int, len(p.fronts))
	for addr, f := range p.fronts {
		n[addr] = f.conns
	}
	return n
}

// Err is the first thing that went wrong in the proxy itself, on a connection
// that it then cut: bytes that are no frame, a route answer it cannot read, no
// port left. A server that cannot be reached is not in it: its client is cut.
func (p *Proxy) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Count is how many requests of the code have come in, in both directions,
// those that a fault took included. Responses do not count.
func (p *Proxy) Count(code int) int {
	return p.CountDir(ToServer, code) + p.CountDir(ToClient, code)
}

// CountDir is Count for one direction; codes such as 309 are used in both.
func (p *Proxy) CountDir(dir Dir, code int) int { return p.count(key{dir, code}).value() }

// WaitCount returns once Count(code) is n or more, or with ctx's error.
// Observers have seen the n-th request then.
func (p *Proxy) WaitCount(ctx context.Context, code, n int) error {
	if err := waitSum(ctx, n, p.count(key{ToServer, code}), p.count(key{ToClient, code})); err != nil {
		return fmt.Errorf("wireproxy: request %d: %w", code, err)
	}
	return nil
}

// Observe shows every frame to see as it arrives, before faults and before its
// addresses are rewritten, until stop is called. see is called by the
// connections at the same time, must not keep them waiting, and must not
// change the frame.
func (p *Proxy) Observe(see func(Dir, remoting.Frame)) (stop func()) {
	o := &observer{see}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observers = append(slices.Clip(p.observers), o)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.observers = without(p.observers, o)
	}
}

// arrived counts a request and shows any frame.
func (p *Proxy) arrived(dir Dir, f remoting.Frame) {
	p.mu.Lock()
	observers := p.observers
	p.mu.Unlock()
	for _, o := range observers {
		o.see(dir, f)
	}
	if !f.IsResponse() {
		p.count(key{dir, f.Code}).add()
	}
}

func (p *Proxy) count(k key) *tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.counts[k]
	if !ok {
		t = new(tally)
		p.counts[k] = t
	}
	return t
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.closed {
		p.err = fmt.Errorf("wireproxy: %w", err)
	}
}

// open returns the front of a server, with a listener of its own on first use.
func (p *Proxy) open(ctx, run context.Context, server string) (*front, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.fronts[server]; ok {
		return f, nil
	}
	if p.closed {
		return nil, net.ErrClosed
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wireproxy: front of %s: %w", server, err)
	}
	f := &front{server: server, ln: ln}
	p.fronts[server] = f
	p.wg.Go(func() { p.accept(run, f) })
	return f, nil
}

func (p *Proxy) accept(run context.Context, f *front) {
	for {
		conn, err := f.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.fail(err)
			}
			return
		}
		p.connected(f, +1)
		p.wg.Go(func() {
			defer p.connected(f, -1)
			serve(run, p, f, conn)
		})
	}
}

func (p *Proxy) connected(f *front, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.conns += n
}

// without is a copy of list that lacks e.
func without[E comparable](list []E, e E) []E {
	return slices.DeleteFunc(slices.Clone(list), func(x E) bool { return x == e })
}
