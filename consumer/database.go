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
	runs  *runs
	// claims: one of its handlers claims each event under a lease.
	claims bool
}

func newDatabases(cfg Config, owner string) map[*model.Store]*database {
	all := map[*model.Store]*database{}
	for _, h := range cfg.Handlers {
		d := all[h.Store]
		if d == nil {
			d = &database{cfg: cfg, store: h.Store, beats: newHeartbeat(cfg, h.Store), runs: newRuns(cfg, h.Store, owner)}
			all[h.Store] = d
		}
		d.claims = d.claims || h.Do.mode.claims()
	}
	return all
}

// startAll starts each. stop stops those that were started, also after an error;
// clean says that no delivery is left under way.
func startAll(ctx context.Context, all map[*model.Store]*database) (stop func(clean bool) error, err error) {
	var stops []func(bool) error
	stop = func(clean bool) error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s(clean))
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

// start notes the run, and runs what goes on in the background until stop is
// called.
func (d *database) start(ctx context.Context) (stop func(clean bool) error, err error) {
	d.warnOfPool(ctx)
	if err := d.runs.begin(ctx); err != nil {
		return nil, errors.Join(err, d.runs.end(ctx))
	}
	if d.claims || d.runs.horizon.Load() != 0 {
		if err := d.prepare(ctx); err != nil {
			return nil, errors.Join(err, d.runs.end(ctx))
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.beats.run(ctx) })           // nil, always
	wg.Go(func() { _ = d.runs.run(ctx, d.prepare) }) // nil, always
	return func(clean bool) error {
		cancel()
		wg.Wait()
		err := d.beats.close()
		if clean {
			err = errors.Join(err, d.runs.end(ctx))
		}
		return err
	}, nil
}

// prepare takes the heartbeat's connection, before there is a lease to renew.
func (d *database) prepare(ctx context.Context) error {
	_, err := d.beats.open(ctx)
	return err
}

func (d *database) warnOfPool(ctx context.Context) {
	if conns := d.store.MaxOpenConns(); conns > 0 && conns < d.cfg.Workers+4 {
		d.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "connection pool is smaller than the workers, they will wait for one another",
			slog.Int("max_open_conns", conns), slog.Int("workers", d.cfg.Workers))
	}
}
