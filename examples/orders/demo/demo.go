// Package demo runs the shop's services as processes, does to them what goes
// wrong in the field, and counts what came of the orders.
//
// Invariants:
//   - Every number of the last line is a count over the services' tables.
//   - The database and the topics are of the run's own; nothing older disturbs.
//   - No process and no proxy outlives Run.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/wireproxy"
)

// Config says what to run.
type Config struct {
	// DSN of a MySQL or MariaDB user that may create databases.
	DSN string
	// Database is emptied at the start, and stays to be looked at.
	Database   string
	NameServer string

	// Program is this program, to be started again for each service; Env is its
	// environment, to which the demo adds what the services need.
	Program string
	Env     []string

	// Orders is how many are placed, a tenth of them refused; MinCommitted of
	// them have to commit.
	Orders, MinCommitted int
	// Scenes of each kind.
	Scenes int
	// Stops is how often a consumer stands still past its lease and is
	// overtaken, at the least. Default: as Scenes and luck will have it.
	Stops int
	// Outages of servers that are the run's own. Default: none.
	Outages []Outage
	// Seed of everything random. What the scheduler does is not in it.
	Seed uint64
	// WithoutDedup has the consumers apply each delivery, to show that a double
	// effect would be seen.
	WithoutDedup bool
	// Timeout is for everything.
	Timeout time.Duration
	// Out gets the lines.
	Out io.Writer
}

// ErrBroken says that a promise was broken, or that the run proves nothing.
var ErrBroken = errors.New("the run is not good")

// demo is a run on its way. One goroutine runs it.
type demo struct {
	*stage
	cfg    Config
	rand   *rand.Rand
	say    func(format string, args ...any)
	proxy  *wireproxy.Proxy
	sender *rocketmq.Sender
	troupe *troupe
	cast

	drops  []*wireproxy.Handle
	faults Faults
	placed int // orders so far

	naiveKilled string // the last order when the hand-written consumer was killed
}

// cast is who plays.
type cast struct {
	orders, jobs, naively *actor
	shares                [2]*actor
}

// Run plays the demo. nil: every promise held, and was put to the test; an error
// that Is ErrBroken says what was not so.
func Run(ctx context.Context, cfg Config) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("%w: not done within %v", ErrBroken, cfg.Timeout))
	defer cancel()
	d := &demo{cfg: cfg, say: teller(cfg.Out)}
	d.rand = rand.New(rand.NewPCG(cfg.Seed, 0))
	if d.stage, err = setUp(ctx, cfg); err != nil {
		return err
	}
	defer d.close()
	defer d.tearDown(context.WithoutCancel(ctx))
	d.say("%d orders on topics %s; database %s; seed %d",
		cfg.Orders, strings.Join(d.names(), " and "), cfg.Database, cfg.Seed)

	if d.proxy, err = wireproxy.Start(ctx, cfg.NameServer); err != nil {
		return err
	}
	defer d.proxy.Close()
	if err := d.startSender(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.sender.Close(context.WithoutCancel(ctx))) }()
	if err := d.enter(ctx); err != nil {
		return err
	}
	defer d.troupe.close()

	for _, act := range []func(context.Context) error{d.play, d.heal} {
		if err := act(ctx); err != nil {
			return fmt.Errorf("%w\nthe logs of the services are in %s", err, d.troupe.logs)
		}
	}
	return d.result(ctx, d.leave(ctx))
}

// startSender makes what delivers messages again. It goes to the broker
// directly, so that the proxy's faults are the services' alone.
func (d *demo) startSender(ctx context.Context) (err error) {
	d.sender, err = rocketmq.NewSender(rocketmq.SenderConfig{
		Broker: txmq.Broker{NameServers: []string{d.cfg.NameServer}}, Group: "demo" + d.suffix, Retries: 2,
	})
	if err != nil {
		return err
	}
	return d.sender.Start(ctx)
}

// enter starts the services.
func (d *demo) enter(ctx context.Context) error {
	logs, err := os.MkdirTemp("", "txmq-demo-")
	if err != nil {
		return err
	}
	d.troupe = &troupe{program: d.cfg.Program, logs: logs, say: d.say}
	d.troupe.env = slices.Concat(d.cfg.Env,
		[]string{"ORDERS_DSN=" + d.dsn, "ORDERS_NAMESRV=" + d.proxy.NameServer(), "ORDERS_SUFFIX=" + d.suffix})

	share := []string{"share"}
	if d.cfg.WithoutDedup {
		share = append(share, "--without-dedup")
	}
	for _, s := range []struct {
		who  **actor
		name string
		args []string
	}{
		{&d.shares[0], "share-1", share},
		{&d.shares[1], "share-2", share},
		{&d.naively, "naive", []string{"naive"}},
		{&d.jobs, "jobs", []string{"jobs"}},
		{&d.orders, "pay", []string{"pay"}},
	} {
		if *s.who, err = d.troupe.start(s.name, s.args...); err != nil {
			d.troupe.close()
			return err
		}
	}
	d.say("services are up: an order service, two profit-sharing consumers, a hand-written one, jobs")
	return ctx.Err()
}

// leave ends the services as a deployment would.
func (d *demo) leave(ctx context.Context) error {
	err := d.troupe.finish(ctx)
	if err == nil {
		d.say("services ended cleanly")
	}
	return errors.Join(err, d.troupe.err(), d.troupe.alarms(), d.proxy.Err())
}

// result prints what came of it. trouble is what the services did not do well.
func (d *demo) result(ctx context.Context, trouble error) error {
	ours, books, err := d.ours(ctx)
	if err != nil {
		return err
	}
	naive, err := d.naive(ctx)
	if err != nil {
		return err
	}
	if err := d.count(ctx); err != nil {
		return err
	}
	d.say("money: shares of %d cents, a balance of %d cents; %d orders x %d cents = %d cents due",
		books.Shares, books.Balance, ours.Committed, books.PerOrder, int64(ours.Committed)*books.PerOrder)
	fmt.Fprintf(d.cfg.Out, "naive %v\n%v\n%v\n", naive, d.faults, ours)
	wrong := Verdict(ours, d.faults, books, d.cfg.MinCommitted)
	if trouble != nil {
		wrong = append(wrong, trouble.Error())
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w:\n  %s\nthe tables are in database %s, the logs of the services in %s",
			ErrBroken, strings.Join(wrong, "\n  "), d.cfg.Database, d.troupe.logs)
	}
	return os.RemoveAll(d.troupe.logs)
}

// count brings the faults up to date.
func (d *demo) count(ctx context.Context) (err error) {
	d.faults.Dropped = 0
	for _, h := range d.drops {
		d.faults.Dropped += h.Hits()
	}
	d.faults.Sweeps, d.faults.Takeovers, err = d.leases(ctx)
	return err
}

// teller prints lines with the time since the start. Safe for concurrent use.
func teller(out io.Writer) func(format string, args ...any) {
	var mu sync.Mutex
	began := time.Now()
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
