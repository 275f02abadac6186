package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/model"
)

// grace is what a lease is still renewed after the handler's deadline: time to
// commit or to write the failure, but not for a handler that hangs.
const grace = 5 * time.Second

// heartbeat renews the leases of the records under way in one database, all on
// one connection that never waits for the handlers'.
type heartbeat struct {
	cfg   Config
	store *model.Store
	grace time.Duration

	opening sync.Mutex
	heart   *model.Heart // nil until open

	mu   sync.Mutex
	held map[*beat]struct{}
}

type beat struct {
	held   model.Held
	until  time.Time // not renewed after it
	told   bool      // its loss has been reported
	cancel context.CancelCauseFunc
}

func newHeartbeat(cfg Config, store *model.Store) *heartbeat {
	return &heartbeat{cfg: cfg, store: store, grace: grace, held: map[*beat]struct{}{}}
}

// open takes the connection, where that has not been done. Called before leases
// are needed, it meets a pool that is not yet the handlers'.
func (b *heartbeat) open(ctx context.Context) (heart *model.Heart, err error) {
	b.opening.Lock()
	defer b.opening.Unlock()
	if b.heart == nil {
		b.heart, err = b.store.Heart(ctx)
	}
	return b.heart, err
}

// run beats until ctx ends.
func (b *heartbeat) run(ctx context.Context) error {
	return loop.Loop{Interval: b.cfg.Lease / 3, Step: func(ctx context.Context) (bool, error) {
		b.renew(ctx)
		return false, nil
	}}.Run(ctx)
}

// close gives the connection back. run has returned.
func (b *heartbeat) close() error {
	if b.heart == nil {
		return nil
	}
	return b.heart.Close()
}

// hold keeps the lease of a claimed record until release, and gives a context
// that ends with the cause txmq.ErrLeaseLost when it is lost.
func (b *heartbeat) hold(ctx context.Context, h model.Held) (_ context.Context, _ *beat, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := &beat{held: h, cancel: cancel}
	b.mu.Lock()
	b.held[e] = struct{}{}
	b.mu.Unlock()
	b.from(e)
	return ctx, e, func() {
		b.mu.Lock()
		delete(b.held, e)
		b.mu.Unlock()
		cancel(nil)
	}
}

// from counts the deadline of e anew: its handler begins. nil: nothing is held.
func (b *heartbeat) from(e *beat) {
	if e == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.until = time.Now().Add(b.cfg.Deadline + b.grace)
}

func (b *heartbeat) renew(ctx context.Context) {
	b.mu.Lock()
	beats := make([]*beat, 0, len(b.held))
	for e := range b.held {
		if time.Now().Before(e.until) {
			beats = append(beats, e)
		}
	}
	b.mu.Unlock()
	for _, e := range beats {
		err := b.extend(ctx, e.held)
		switch {
		case errors.Is(err, txmq.ErrLeaseLost) && b.holds(e): // else it has ended since
			b.lost(ctx, e)
			e.cancel(txmq.ErrLeaseLost)
		case err != nil && !errors.Is(err, txmq.ErrLeaseLost):
			b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "lease not renewed",
				slog.String("consumer", e.held.Consumer), slog.String("event_id", e.held.EventID), slog.Any("error", err))
		}
	}
}

func (b *heartbeat) extend(ctx context.Context, h model.Held) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Lease/3)
	defer cancel()
	heart, err := b.open(ctx)
	if err != nil {
		return err
	}
	return heart.Extend(ctx, h, b.cfg.Lease)
}

// lost reports the loss of a lease, once: the next beat and the end of the
// handler meet it too. nil: nothing was held.
func (b *heartbeat) lost(ctx context.Context, e *beat) {
	if e == nil {
		return
	}
	b.mu.Lock()
	told := e.told
	e.told = true
	b.mu.Unlock()
	if !told {
		b.cfg.Observe.Emit(ctx, txmq.LeaseLost{Consumer: e.held.Consumer, EventID: e.held.EventID})
	}
}

func (b *heartbeat) holds(e *beat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.held[e]
	return ok
}
