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
	held map[eventKey]*turn
}

// eventKey is an event in a handler.
type eventKey struct{ consumer, eventID string }

type turn struct {
	users  int           // who has it or waits for it
	number int           // of the holder, who may have lost it to the next one
	until  time.Time     // when the holder loses it; zero while nobody has it
	free   chan struct{} // closed when it is given back; nil while nobody waits
}

func newKeyLock() *keyLock { return &keyLock{held: map[eventKey]*turn{}} }

// take waits for the key until ctx ends. A holder that hangs loses its turn
// after hold.
func (l *keyLock) take(ctx context.Context, key eventKey, hold time.Duration) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.enter(key)
	for t.taken() {
		if err := l.wait(ctx, t); err != nil {
			l.leave(key, t)
			return nil, err
		}
	}
	return l.have(key, t, hold), nil
}

// try is take that does not wait; nil: another has the key.
func (l *keyLock) try(key eventKey, hold time.Duration) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.enter(key)
	if t.taken() {
		l.leave(key, t)
		return nil
	}
	return l.have(key, t, hold)
}

func (t *turn) taken() bool { return time.Now().Before(t.until) }

// enter, leave, have and wait are called with l.mu held.
func (l *keyLock) enter(key eventKey) *turn {
	t := l.held[key]
	if t == nil {
		t = &turn{}
		l.held[key] = t
	}
	t.users++
	return t
}

func (l *keyLock) leave(key eventKey, t *turn) {
	if t.users--; t.users == 0 {
		delete(l.held, key)
	}
}

func (l *keyLock) have(key eventKey, t *turn, hold time.Duration) (release func()) {
	t.number++
	t.until = time.Now().Add(hold)
	mine := t.number
	return func() { l.release(key, t, mine) }
}

// wait returns when t may be free. It lets l.mu go meanwhile.
func (l *keyLock) wait(ctx context.Context, t *turn) error {
	if t.free == nil {
		t.free = make(chan struct{})
	}
	free, hung := t.free, time.NewTimer(time.Until(t.until))
	defer hung.Stop()
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-free:
		return nil
	case <-hung.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *keyLock) release(key eventKey, t *turn, mine int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.number == mine {
		t.until = time.Time{}
		if t.free != nil {
			close(t.free)
			t.free = nil
		}
	}
	l.leave(key, t)
}
