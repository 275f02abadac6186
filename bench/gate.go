package main

import (
	"context"
	"sync"
)

// gate holds workers back until it is opened, and knows when all stand at it.
type gate struct {
	mu      sync.Mutex
	way     chan struct{} // closed while open
	waiting int
	all     chan struct{} // closed when the last worker has come
}

func newGate() *gate {
	g := &gate{way: make(chan struct{}), all: make(chan struct{})}
	close(g.way)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way, g.all, g.waiting = make(chan struct{}), make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	way := g.way
	if g.waiting++; g.waiting == workers {
		close(g.all)
	}
	g.mu.Unlock()
	<-way
}

// full waits until all workers stand at the gate.
func (g *gate) full(ctx context.Context) error {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
