package wireproxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txmq/txmq/internal/remoting"
)

// Action is what a fault does with the requests it takes.
type Action int

const (
	// Pass lets the request through: the fault only counts. A hit is a request
	// that was passed on.
	Pass Action = iota

	// DropRequest swallows the request; the connection stays. A hit is a
	// request that was swallowed.
	DropRequest

	// LoseReply passes the request on and swallows its reply. A hit is a reply
	// that was swallowed: the other side has done its work by then. A one-way
	// request has no reply, so it is a hit when passed on. A request that is
	// not marked one-way and yet never answered, as EndTransaction with an
	// unknown outcome, is taken (Count, Skip) but never a hit.
	LoseReply

	// Delay holds the request; others on its connection overtake it. A hit is
	// a request that has begun to be held.
	Delay

	// DelayReply passes the request on and holds its reply. A hit is a reply
	// that has begun to be held.
	DelayReply

	// Disconnect cuts the connection, both sides of it, instead of passing the
	// request on. A hit is a connection about to be cut.
	Disconnect

	// Answer answers the request with Response and Remark, without body,
	// instead of passing it on: a busy broker, a topic that does not exist. A
	// hit is an answer about to be given; a one-way request gets none.
	Answer
)

// Fault says which requests to take and what to do with them. The zero value
// takes every request and passes it on.
type Fault struct {
	// Code is the request code, in either direction: CheckTransactionState
	// comes from the broker. 0 is any.
	Code int

	// Match narrows the choice. It is called by the connections at the same
	// time, perhaps more than once for a frame that another fault takes, and
	// must not change the frame. Default: all.
	Match func(remoting.Frame) bool

	// Server is the real address of the server at one end of the connection,
	// as in Conns. Default: any.
	Server string

	// Skip lets so many matching requests pass first.
	Skip int

	// Count is how many requests to take after those. Default 0: until removed.
	Count int

	Action Action

	// Response and Remark are what Answer says.
	Response int
	Remark   string

	// For and Until end a Delay or DelayReply, whichever is first; so do
	// Remove, Close and the end of the connection (the last two drop the
	// frame). With neither set, Remove is the only way on.
	For   time.Duration
	Until <-chan struct{}
}

// Handle is an injected fault. All methods may be called at the same time.
type Handle struct {
	fault   Fault
	p       *Proxy
	hits    tally
	removed chan struct{}

	mu      sync.Mutex
	matched int
	gone    bool
}

// Inject adds a fault. A request goes to the first fault, in the order of
// Inject, that wants it, and to no other.
func (p *Proxy) Inject(f Fault) *Handle {
	h := &Handle{fault: f, p: p, removed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(slices.Clip(p.faults), h)
	return h
}

// Hits is how many requests the fault has struck; Action says when that is.
func (h *Handle) Hits() int { return h.hits.value() }

// Wait returns once Hits is n or more, or with ctx's error.
func (h *Handle) Wait(ctx context.Context, n int) error {
	if err := waitSum(ctx, n, &h.hits, new(tally)); err != nil {
		return fmt.Errorf("wireproxy: fault on request %d: %w", h.fault.Code, err)
	}
	return nil
}

// Remove ends the fault: no further request is taken, held frames go on their
// way. A reply that is still to be lost is lost. More than one call is one.
func (h *Handle) Remove() {
	h.mu.Lock()
	first := !h.gone
	h.gone = true
	h.mu.Unlock()
	if !first {
		return
	}
	close(h.removed)
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.p.faults = without(h.p.faults, h)
}

// take finds the fault for a request, or returns nil.
func (p *Proxy) take(server string, f remoting.Frame) *Handle {
	p.mu.Lock()
	faults := p.faults
	p.mu.Unlock()
	for _, h := range faults {
		if h.wants(server, f) && h.claim() {
			return h
		}
	}
	return nil
}

func (h *Handle) wants(server string, f remoting.Frame) bool {
	return (h.fault.Code == 0 || h.fault.Code == f.Code) &&
		(h.fault.Server == "" || h.fault.Server == server) &&
		(h.fault.Match == nil || h.fault.Match(f))
}

// claim uses up one of Skip or Count.
func (h *Handle) claim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.fault.Count > 0 && h.matched >= h.fault.Skip+h.fault.Count {
		return false
	}
	h.matched++
	return h.matched > h.fault.Skip
}

// hold blocks for as long as the fault delays, and tells whether to go on.
func (h *Handle) hold(ctx context.Context) bool {
	var over <-chan time.Time
	if h.fault.For > 0 {
		t := time.NewTimer(h.fault.For)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-h.fault.Until:
	case <-h.removed:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
