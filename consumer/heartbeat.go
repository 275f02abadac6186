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

// heartbeat renews the leases of the records under way, all on one connection
// that never waits for the handlers'.
type heartbeat struct {
	cfg    Config
	needed bool

	mu   sync.Mutex
	held map[*beat]struct{}
}

type beat struct {
	held   model.Held
	until  time.Time // not renewed after it
	cancel context.CancelCauseFunc
}

func newHeartbeat(cfg Config) *heartbeat {
	b := &heartbeat{cfg: cfg, held: map[*beat]struct{}{}}
	for _, h := range cfg.Handlers {
		b.needed = b.needed || h.Do.mode.claims()
	}
	return b
}

// start beats until stop is called. Where no handler claims it does nothing.
func (b *heartbeat) start(ctx context.Context, store *model.Store) (stop func() error, err error) {
	if !b.needed {
		return func() error { return nil }, nil
	}
	heart, err := store.Heart(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		// Run returns nil, always.
		_ = loop.Loop{Interval: b.cfg.Lease / 3, Step: func(ctx context.Context) (bool, error) {
			b.renew(ctx, heart)
			return false, nil
		}}.Run(ctx)
	})
	return func() error {
		cancel()
		wg.Wait()
		return heart.Close()
	}, nil
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
	e.until = time.Now().Add(b.cfg.Deadline + grace)
}

func (b *heartbeat) renew(ctx context.Context, heart *model.Heart) {
	b.mu.Lock()
	beats := make([]*beat, 0, len(b.held))
	for e := range b.held {
		if time.Now().Before(e.until) {
			beats = append(beats, e)
		}
	}
	b.mu.Unlock()
	for _, e := range beats {
		bounded, cancel := context.WithTimeout(ctx, b.cfg.Lease/3)
		err := heart.Extend(bounded, e.held, b.cfg.Lease)
		cancel()
		switch {
		case errors.Is(err, txmq.ErrLeaseLost) && b.holds(e): // else it has ended since
			b.cfg.Observe.Emit(ctx, txmq.LeaseLost{Consumer: e.held.Consumer, EventID: e.held.EventID})
			e.cancel(txmq.ErrLeaseLost)
		case err != nil && !errors.Is(err, txmq.ErrLeaseLost):
			b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "lease not renewed",
				slog.String("consumer", e.held.Consumer), slog.String("event_id", e.held.EventID), slog.Any("error", err))
		}
	}
}

func (b *heartbeat) holds(e *beat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.held[e]
	return ok
}
