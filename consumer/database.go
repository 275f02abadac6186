package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/txmq/txmq/model"
)

// database is one of the handlers' stores with what a consumer does in it beside
// the deliveries.
type database struct {
	cfg   Config
	store *model.Store
	beats *heartbeat
	// claims: one of its handlers claims each event under a lease.
	claims bool
}

func newDatabases(cfg Config) map[*model.Store]*database {
	all := map[*model.Store]*database{}
	for _, h := range cfg.Handlers {
		d := all[h.Store]
		if d == nil {
			d = &database{cfg: cfg, store: h.Store, beats: newHeartbeat(cfg, h.Store)}
			all[h.Store] = d
		}
		d.claims = d.claims || h.Do.mode.claims()
	}
	return all
}

// startAll starts each. stop stops those that were started, also after an error.
func startAll(ctx context.Context, all map[*model.Store]*database) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	for _, d := range all {
		s, err := d.start(ctx)
		if err != nil {
			return stop, err
		}
		stops = append(stops, s)
	}
	return stop, nil
}

// start runs what goes on in the background until stop is called.
func (d *database) start(ctx context.Context) (stop func() error, err error) {
	d.warnOfPool(ctx)
	if d.claims {
		if _, err := d.beats.open(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.beats.run(ctx) }) // nil, always
	return func() error {
		cancel()
		wg.Wait()
		return d.beats.close()
	}, nil
}

func (d *database) warnOfPool(ctx context.Context) {
	if conns := d.store.MaxOpenConns(); conns > 0 && conns < d.cfg.Workers+4 {
		d.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "connection pool is smaller than the workers, they will wait for one another",
			slog.Int("max_open_conns", conns), slog.Int("workers", d.cfg.Workers))
	}
}
