package checker

import (
	"context"
	"fmt"
	"sync"

	"github.com/txmq/txmq"
)

// gate counts what is under way, for who closes behind it.
type gate struct {
	mu      sync.Mutex
	closed  bool
	running int
	idle    chan struct{} // closed when the last is out; nil while nobody waits
}

// enter counts one more, unless limit (0: none) are in, or the gate is closed:
// txmq.ErrClosed. Each enter that returns nil is followed by one leave.
func (g *gate) enter(limit int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return txmq.ErrClosed
	case limit > 0 && g.running >= limit:
		return errBusy
	default:
		g.running++
		return nil
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// close lets nobody in any more, and waits until all are out, or for ctx, whose
// error it returns then.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	if g.running == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d still run: %w", g.count(), context.Cause(ctx))
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}
