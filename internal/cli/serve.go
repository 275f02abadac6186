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

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

type serveCommand struct {
	logging
	Listen     string        `default:"127.0.0.1:8085" placeholder:"ADDR" help:"Address of /livez and /readyz."`
	Drain      time.Duration `default:"30s" help:"What a running job gets to end by itself on SIGTERM."`
	SweepEvery time.Duration `default:"1m" help:"How often rows whose worker died are put to FAIL."`

	CompensateEvery time.Duration `default:"1m" help:"How often FAIL rows that nobody redelivers are delivered again. Needs --name-servers."`
	Stale           time.Duration `default:"5m" help:"How long a FAIL row is over its next retry before nobody counts as redelivering it."`
	DeadLetters     []string      `placeholder:"GROUP,..." help:"Consumer groups whose dead-letter queues are taken in: a DEAD row for each message without a record."`
	ways
}

// ways tells jobs where to send what is delivered again.
type ways struct {
	Groups map[string]string `name:"handler-group" mapsep:"," placeholder:"HANDLER=GROUP,..." help:"The consumer group of a handler with a name of its own. Default: what stands before the last colon of GROUP:TOPIC."`
}

// jobs is what runs, in the words of jobs.Config.
func (c *serveCommand) jobs(store *model.Store, broker txmq.Broker, log *slog.Logger) jobs.Config {
	cfg := jobs.Config{
		Store: store, Broker: broker, Drain: c.Drain, Logger: log, Groups: c.Groups,
		Sweep:      jobs.SweepConfig{Every: c.SweepEvery},
		Compensate: jobs.CompensateConfig{Every: c.CompensateEvery, Stale: c.Stale},
	}
	for _, group := range c.DeadLetters {
		cfg.DeadLetters = append(cfg.DeadLetters, jobs.DeadLetter{Group: group})
	}
	return cfg
}

// wholeSeconds is what cron counts in.
func (a *app) wholeSeconds(name string, d time.Duration) error {
	if d < time.Second || d%time.Second != 0 {
		return usage("give whole seconds, such as 1m", "%s is %v", a.called(name), d)
	}
	return nil
}

// check tells all that is wrong with the durations at once.
func (c *serveCommand) check(a *app) error {
	errs := []error{a.wholeSeconds("sweep-every", c.SweepEvery), a.wholeSeconds("compensate-every", c.CompensateEvery)}
	if c.Drain < 0 {
		errs = append(errs, usage("give a duration such as 30s", "%s is %v", a.called("drain"), c.Drain))
	}
	if c.Stale <= 0 {
		errs = append(errs, usage("give a duration such as 5m", "%s is %v", a.called("stale"), c.Stale))
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, and then stops cleanly: readiness fails at once,
// the running job gets its drain, the health page goes last.
func (c *serveCommand) Run(ctx context.Context, a *app) error {
	broker, err := a.broker(len(c.DeadLetters) > 0)
	if err := errors.Join(c.check(a), err); err != nil {
		return err
	}
	if c.Drain == 0 {
		c.Drain = -1 // none, in the words of jobs.Config
	}
	store, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	log := c.logger(a.stderr)
	runner, err := jobs.New(c.jobs(store, broker, log))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return failed(fmt.Errorf("%s: %w", a.called("listen"), err), "choose another address with --listen")
	}
	if len(broker.NameServers) == 0 {
		log.WarnContext(ctx, "compensate is off, so FAIL rows that nobody redelivers stay: give --name-servers")
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
