package consumer

import (
	"context"
	"sync"
	"time"
)

// keyLock serves deliveries of one key one after another inside the process, so
// that they do not meet as a deadlock in the database. It guards nothing: the
// record decides.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free    chan struct{} // holds one token while nobody has the turn
	waiting int           // who has it or waits for it
}

func newKeyLock() *keyLock { return &keyLock{held: map[string]*turn{}} }

// take waits for the key until ctx ends. A holder that hangs loses its turn
// after hold.
func (l *keyLock) take(ctx context.Context, key string, hold time.Duration) (release func(), err error) {
	t := l.enter(key)
	select {
	case <-t.free:
		return l.have(key, t, hold), nil
	case <-ctx.Done():
		l.leave(key, t)
		return nil, context.Cause(ctx)
	}
}

// try is take that does not wait; nil: another has the key.
func (l *keyLock) try(key string, hold time.Duration) (release func()) {
	t := l.enter(key)
	select {
	case <-t.free:
		return l.have(key, t, hold)
	default:
		l.leave(key, t)
		return nil
	}
}

func (l *keyLock) enter(key string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held[key]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.held[key] = t
	}
	t.waiting++
	return t
}

func (l *keyLock) leave(key string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		delete(l.held, key)
	}
}

func (l *keyLock) have(key string, t *turn, hold time.Duration) (release func()) {
	var once sync.Once
	pass := func() { once.Do(func() { t.free <- struct{}{} }) }
	hung := time.AfterFunc(hold, pass)
	return func() { hung.Stop(); pass(); l.leave(key, t) }
}
