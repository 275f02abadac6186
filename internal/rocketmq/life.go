package rocketmq

import (
	"context"
	"errors"
	"sync"

	"github.com/txmq/txmq"
)

var errStartedBefore = errors.New("rocketmq: started before")

// life is what all components have in common: they are started once, count
// what is in flight, and are closed once.
type life struct {
	starting sync.Mutex // one Start at a time, and no Close during it

	mu      sync.Mutex
	state   state
	flying  int
	changed chan struct{} // closed when the last one has landed; nil while nobody waits

	closing sync.Once
	closed  chan struct{} // closed when Close's work is done
	err     error         // Close's result, readable then
}

type state uint8

const (
	stateNew state = iota
	stateRunning
	stateClosed
)

func newLife() *life { return &life{closed: make(chan struct{})} }

// start runs f unless it was run with success before. After an error it may be
// called again.
func (l *life) start(f func() error) error {
	l.starting.Lock()
	defer l.starting.Unlock()
	switch l.now() {
	case stateRunning:
		return errStartedBefore
	case stateClosed:
		return txmq.ErrClosed
	default:
	}
	if err := f(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = stateRunning
	return nil
}

func (l *life) now() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// begin counts one more in flight, unless the component does not run. Each
// begin that returns nil is followed by one end.
func (l *life) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case stateNew:
		return txmq.ErrNotStarted
	case stateClosed:
		return txmq.ErrClosed
	default:
		l.flying++
		return nil
	}
}

// join is begin for what the client calls, which it does before Start has
// returned, too.
func (l *life) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == stateClosed {
		return txmq.ErrClosed
	}
	l.flying++
	return nil
}

// also counts one more beside one that is in flight already; it is never
// refused.
func (l *life) also() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying++
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying--
	if l.flying == 0 && l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// drain waits until nothing is in flight, or ctx is done, and says how many
// are left.
func (l *life) drain(ctx context.Context) int {
	l.mu.Lock()
	if l.flying == 0 {
		l.mu.Unlock()
		return 0
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	landed := l.changed
	l.mu.Unlock()

	select {
	case <-landed:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flying
}

// close refuses begins from now on and runs f once, if the component ever ran.
// Later calls wait for the first one's result, up to their ctx.
func (l *life) close(ctx context.Context, f func() error) error {
	first := false
	l.closing.Do(func() { first = true })
	if !first {
		select {
		case <-l.closed:
			return l.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(l.closed)
	l.starting.Lock()
	defer l.starting.Unlock()
	l.mu.Lock()
	ran := l.state == stateRunning
	l.state = stateClosed
	l.mu.Unlock()
	if ran {
		l.err = f()
	}
	return l.err
}
