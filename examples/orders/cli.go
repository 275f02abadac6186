package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/examples/orders/demo"
	"github.com/txmq/txmq/examples/orders/shop"
	"github.com/txmq/txmq/model"
)

// commands is the command line.
type commands struct {
	services

	Pay   payCommand   `cmd:"" help:"The order service: pays NEW orders."`
	Share shareCommand `cmd:"" help:"The profit-sharing service: gives the partner a share of each paid order."`
	Jobs  jobsCommand  `cmd:"" help:"Sets work free whose worker died."`
	Naive naiveCommand `cmd:"" help:"A hand-written consumer, for comparison."`
	Demo  demoCommand  `cmd:"" help:"Runs all of them, breaks them, and counts what came of the orders."`
}

// services is where MySQL or MariaDB and RocketMQ are, and what a shop adds to
// the names of topics and groups.
type services struct {
	DSN     string `name:"dsn" env:"ORDERS_DSN" help:"Database, as go-sql-driver/mysql writes it. Default: that of scripts/services."`
	Namesrv string `env:"ORDERS_NAMESRV" help:"Name server of RocketMQ, ip:port. Default: that of scripts/services."`
	Suffix  string `env:"ORDERS_SUFFIX" help:"Put behind topics and groups."`
	Health  string `env:"ORDERS_HEALTH" help:"Address of /livez and /readyz of a service. Default: none."`
}

// stdio is what a command may write to.
type stdio struct{ out, err io.Writer }

// run is the whole program but its exit. 0 is success, 1 a failure, 2 a wrong
// command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c commands
	exited := -1 // by --help
	parser, err := kong.New(&c, kong.Name("orders"), kong.Writers(stdout, stderr), kong.UsageOnError(),
		kong.Description("A shop that pays orders and shares the profit through RocketMQ."),
		kong.Exit(func(code int) { exited = code }))
	if err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 2
	}
	chosen, err := parser.Parse(args)
	switch {
	case exited >= 0:
		return exited
	case err != nil:
		fmt.Fprintf(stderr, "orders: %v\nhint: see orders --help\n", err)
		return 2
	}
	if err := c.fill(); err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	chosen.BindTo(ctx, (*context.Context)(nil))
	if err := chosen.Run(c.services, stdio{stdout, stderr}); err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	return 0
}

// serve connects and runs one service until ctx ends.
func (s services) serve(ctx context.Context, out stdio, service func(context.Context, shop.Config) error, lease time.Duration) error {
	db, err := shop.OpenDB(s.DSN)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, demo.Hint)
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }() // nothing is under way any more
	store, err := model.Open(ctx, db, model.Config{})
	if err != nil {
		return err // says what to do
	}
	h := &health{stopping: func() bool { return ctx.Err() != nil }, database: store.Ping}
	if s.Health != "" {
		end, err := serveHealth(ctx, s.Health, h)
		if err != nil {
			return err
		}
		defer func() { _ = end() }() // goes last, and is nobody's work
	}
	return service(ctx, shop.Config{
		Store: store, Broker: txmq.Broker{NameServers: []string{s.Namesrv}}, Suffix: s.Suffix,
		Logger: slog.New(slog.NewTextHandler(out.err, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Lease:  lease, Deadline: lease * 2 / 3, Terms: 100 * time.Millisecond, Probe: h.watch,
	})
}

type payCommand struct{}

// Run is the order service.
func (payCommand) Run(ctx context.Context, s services, out stdio) error {
	return s.serve(ctx, out, shop.RunOrders, 0)
}

type shareCommand struct {
	Lease        time.Duration `default:"3s" help:"How long work is its worker's without a sign of life."`
	WithoutDedup bool          `help:"Apply each delivery, without txmq."`
}

// Run is the profit-sharing service.
func (c shareCommand) Run(ctx context.Context, s services, out stdio) error {
	service := shop.RunShares
	if c.WithoutDedup {
		service = demo.RunPlain
	}
	return s.serve(ctx, out, service, c.Lease)
}

type jobsCommand struct{}

// Run is the jobs.
func (jobsCommand) Run(ctx context.Context, s services, out stdio) error {
	return s.serve(ctx, out, shop.RunJobs, 0)
}

type naiveCommand struct{}

// Run is the hand-written consumer.
func (naiveCommand) Run(ctx context.Context, s services, out stdio) error {
	return s.serve(ctx, out, demo.RunNaive, 0)
}

type demoCommand struct {
	Orders       int           `default:"500" help:"How many orders are placed; a tenth is refused."`
	MinCommitted int           `default:"200" help:"So many have to commit."`
	Scenes       int           `default:"4" help:"How often each kind of fault is played."`
	Seed         uint64        `help:"Of everything random. Default: by the clock."`
	WithoutDedup bool          `help:"Have the consumers apply each delivery, to see that a double effect would show."`
	Database     string        `default:"txmq_demo" help:"Emptied at the start, kept at the end."`
	Timeout      time.Duration `default:"4m45s" help:"For everything."`
}

// Run is the demo.
func (c demoCommand) Run(ctx context.Context, s services, out stdio) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	return demo.Run(ctx, demo.Config{
		DSN: s.DSN, NameServer: s.Namesrv, Database: c.Database, Program: program, Env: os.Environ(),
		Orders: c.Orders, MinCommitted: c.MinCommitted, Scenes: c.Scenes, Seed: c.Seed,
		WithoutDedup: c.WithoutDedup, Timeout: c.Timeout, Out: out.out,
	})
}
