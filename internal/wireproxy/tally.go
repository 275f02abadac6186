package wireproxy

import (
	"context"
	"fmt"
	"sync"
)

// tally is a number that rises and can be waited for. The zero value is ready.
type tally struct {
	mu   sync.Mutex
	n    int
	next chan struct{} // closed by the next add; nil while nobody waits
}

func (t *tally) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

func (t *tally) value() int {
	n, _ := t.watch()
	return n
}

// watch returns the number and a channel that closes when it rises.
func (t *tally) watch() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = make(chan struct{})
	}
	return t.n, t.next
}

// waitSum waits until a and b together are want or more.
func waitSum(ctx context.Context, want int, a, b *tally) error {
	for {
		x, xRises := a.watch()
		y, yRises := b.watch()
		if x+y >= want {
			return nil
		}
		select {
		case <-xRises:
		case <-yRises:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d: %w", x+y, want, context.Cause(ctx))
		}
	}
}
