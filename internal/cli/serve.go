package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txmq/txmq/jobs"
)

type serveCommand struct {
	logging
	Listen     string        `default:"127.0.0.1:8085" placeholder:"ADDR" help:"Address of /livez and /readyz."`
	Drain      time.Duration `default:"30s" help:"What a running job gets to end by itself on SIGTERM."`
	SweepEvery time.Duration `default:"1m" help:"How often rows whose worker died are put to FAIL."`
}

// Run serves until ctx ends, and then stops cleanly: readiness fails at once,
// the running job gets its drain, the health page goes last.
func (c *serveCommand) Run(ctx context.Context, a *app) error {
	if c.Drain < 0 {
		return usage("give a duration such as 30s", "%s is %v", a.called("drain"), c.Drain)
	}
	if c.Drain == 0 {
		c.Drain = -1 // none, in the words of jobs.Config
	}
	if c.SweepEvery < time.Second || c.SweepEvery%time.Second != 0 {
		return usage("give whole seconds, such as 1m", "%s is %v", a.called("sweep-every"), c.SweepEvery)
	}
	broker, err := a.broker(false) // no job sends yet
	if err != nil {
		return err
	}
	store, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	log := c.logger(a.stderr)
	runner, err := jobs.New(jobs.Config{
		Store: store, Broker: broker, Drain: c.Drain, Logger: log,
		Sweep: jobs.SweepConfig{Every: c.SweepEvery},
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return failed(fmt.Errorf("%s: %w", a.called("listen"), err), "choose another address with --listen")
	}
	log.InfoContext(ctx, "serving", slog.String("listen", listener.Addr().String()), slog.Any("jobs", runner.Names()))
	if err := serve(ctx, listener, store.Ping, runner.Run, log); err != nil {
		return err
	}
	log.InfoContext(ctx, "stopped")
	return nil
}

// serve runs run and the health page beside it; the first to fail ends the
// other, and the page is there until run has ended.
func serve(ctx context.Context, listener net.Listener, ping, run func(context.Context) error, log *slog.Logger) error {
	server := &http.Server{
		Handler:           health(func() bool { return ctx.Err() != nil }, ping),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	g, work := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("health page: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		err := run(work)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close() // a client that holds its request
		}
		return err
	})
	return g.Wait()
}
