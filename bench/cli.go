package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// options are the sizes of a run.
type options struct {
	blocks   int
	round    time.Duration // of the senders
	messages int           // a consumer's round
	calls    int           // a round without I/O
}

var (
	full  = options{blocks: 40, round: time.Second, messages: 3000, calls: 3000}
	quick = options{blocks: 12, round: 700 * time.Millisecond, messages: 2000, calls: 2000}
)

const usage = `bench compares txmq with the raw client and hand-written SQL.

usage: bench [-quick] [-only NAME[,NAME]] [-list]

Prints a line for each benchmark: NAME ratio low high valid|invalid. The ratio is
txmq's rate over its peer's, or for overhead, the allocations for each message
that txmq's own code adds to the same statements sent by hand; low and high
enclose it with 99 % confidence. All else goes to stderr. Exit code 0, also when
an aim is missed; 1 after an error. docs/performance.md tells the method.
`

// run is the command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if err := command(ctx, args, stdout, stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(stderr, "bench:", err)
			return 1
		}
	}
	return 0
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage); flags.PrintDefaults() }
	list := flags.Bool("list", false, "print the names, one a line")
	only := flags.String("only", "", "run these only: `NAME[,NAME]`")
	short := flags.Bool("quick", false, "fewer blocks: all within 10 minutes")
	profiles := flags.String("profile", "", "write cpu.pprof and allocs.pprof into `DIR`")
	verbose := flags.Bool("v", false, "tell of each block")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if *list {
		for _, b := range chosen {
			_, _ = fmt.Fprintln(stdout, b.name)
		}
		return nil
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	r := &runner{
		stdout: stdout, stderr: stderr, sizes: full,
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
	}
	if *short {
		r.sizes = quick
	}
	rlog.SetLogLevel("error") // until txmq's first component takes the client's logger over
	if *profiles == "" {
		return r.all(ctx, chosen)
	}
	stop, err := profile(*profiles)
	if err != nil {
		return err
	}
	return errors.Join(r.all(ctx, chosen), stop())
}

func choose(only string) ([]benchmark, error) {
	if only == "" {
		return benchmarks, nil
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no benchmark %q: see -list", name)
		}
		chosen = append(chosen, benchmarks[i])
	}
	return chosen, nil
}

// runner runs benchmarks one after another.
type runner struct {
	stdout, stderr io.Writer
	log            *slog.Logger
	sizes          options
}

func (r *runner) all(ctx context.Context, chosen []benchmark) error {
	var failed error
	r.log.LogAttrs(ctx, slog.LevelInfo, "machine", machine()...)
	for _, b := range chosen {
		if err := r.one(ctx, b); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return failed
}

func (r *runner) one(ctx context.Context, b benchmark) error {
	var result verdict
	for i, p := range b.parts {
		v, err := r.part(ctx, b, p)
		if err != nil {
			return err
		}
		if i == 0 {
			result = v
		}
		result = b.worse(result, v)
	}
	_, _ = fmt.Fprintf(r.stderr, "%s: %s\n", b.name, b.aimed(result))
	_, _ = fmt.Fprintf(r.stdout, "%s %.3f %.3f %.3f %s\n", b.name, result.score.mid, result.score.low, result.score.high, result.word())
	return nil
}

func (r *runner) part(ctx context.Context, b benchmark, p part) (v verdict, err error) {
	w := newWorld(r.log)
	defer func() { err = errors.Join(err, w.close()) }()
	if !p.local {
		if err := w.ready(); err != nil {
			return v, err
		}
		server, err := w.server(ctx)
		if err != nil {
			return v, err
		}
		r.log.LogAttrs(ctx, slog.LevelInfo, "part begins", append(server, slog.String("part", p.name))...)
	}
	t, err := p.sides(ctx, w, r.sizes)
	if err != nil {
		return v, err
	}
	blocks, err := t.blocks(ctx, r.sizes.blocks, r.log)
	if err != nil {
		return v, err
	}
	v = b.judge(blocks)
	return v, r.tell(p.name, v, blocks)
}

// tell prints what is not in the result line.
func (r *runner) tell(name string, v verdict, blocks []block) error {
	var sum block
	for _, bl := range blocks {
		for i := range bl {
			sum[i] = sum[i].add(bl[i])
		}
	}
	table := tabwriter.NewWriter(r.stderr, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%s\tmessages/s\tstatements\tround trips\tcommits\tallocations\t(each message)\n", name)
	for i, side := range []string{"txmq", "peer", "control"} {
		s := sum[i]
		each := func(n int64) float64 { return float64(n) / float64(s.messages) }
		_, _ = fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.1f\n", side, s.rate(),
			each(s.db.Statements), each(s.db.Trips), each(s.db.Commits), s.allocs())
	}
	_, _ = fmt.Fprintf(table, "%.3f [%.3f, %.3f], control %.3f [%.3f, %.3f], %d blocks\n",
		v.score.mid, v.score.low, v.score.high, v.control.mid, v.control.low, v.control.high, len(blocks))
	return table.Flush()
}
