package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
)

// Result says what one run did.
type Result struct {
	Done int           `json:"done"` // rows changed
	More bool          `json:"more"` // the run met its bound and left some
	Took time.Duration `json:"took"`
}

// job is all that a job is; what is common to them is in run.go.
type job struct {
	name    string        // its row in t_job_lease
	every   time.Duration // never: only RunOnce
	timeout time.Duration
	run     func(context.Context) (Result, error) // bounded; Took is filled in for it
}

// slot keeps the runs of one job in this process apart.
type slot struct {
	job
	busy sync.Mutex
}

// Runner runs the jobs. Its methods are safe for concurrent use.
type Runner struct {
	cfg      Config
	owner    string
	slots    []*slot
	link     func() broker
	again    time.Duration // see intake
	running  atomic.Bool
	schedule func(every time.Duration) cron.Schedule
}

// New checks the config and starts nothing. Its error lists every bad field.
func New(cfg Config) (*Runner, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	list := []job{sweep(cfg)}
	if cfg.hasBroker() || len(cfg.Compensators) > 0 {
		list = append(list, compensate(cfg, cfg.newRemote))
	}
	return newRunner(cfg, list...), nil
}

func newRunner(cfg Config, jobs ...job) *Runner {
	r := &Runner{
		cfg: cfg, owner: owner(), link: cfg.newRemote, again: lookAgain,
		schedule: func(every time.Duration) cron.Schedule { return cron.Every(every) },
	}
	for _, j := range jobs {
		r.slots = append(r.slots, &slot{job: j})
	}
	return r
}

// owner names this runner in t_job_lease: for people, and unlike any other.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.30s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// Names lists the jobs that RunOnce knows.
func (r *Runner) Names() []string {
	names := make([]string, 0, len(r.slots))
	for _, s := range r.slots {
		names = append(names, s.name)
	}
	return names
}

// Run ticks until ctx ends, each job for the first time at once, and takes dead
// letters in. Then it waits up to Drain for what is in progress, cancels it, and
// returns nil. A job that ignores its cancelled context holds Run up. A second
// Run beside the first is an error.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return &txmq.OpError{Op: "jobs", Err: errors.New("Run is running already")}
	}
	defer r.running.Store(false)

	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
	for _, s := range r.slots {
		if s.every == never {
			continue
		}
		// No chain: cron's SkipIfStillRunning can't see a RunOnce, and is shut for
		// good by a panic that passes through it. run has both, skip outermost.
		c.Schedule(&atOnce{Schedule: r.schedule(s.every)}, cron.FuncJob(func() {
			if ctx.Err() == nil {
				r.tick(work, s)
			}
		}))
	}
	var intakes sync.WaitGroup
	defer intakes.Wait()
	for _, l := range r.cfg.DeadLetters {
		intakes.Go(func() { intake{Config: r.cfg, DeadLetter: l, again: r.again}.run(ctx) })
	}
	c.Start()
	<-ctx.Done()
	idle := c.Stop() // it waits for nothing by itself
	if r.cfg.Drain > 0 {
		drain := time.NewTimer(r.cfg.Drain)
		defer drain.Stop()
		select {
		case <-idle.Done():
			return nil
		case <-drain.C:
		}
	}
	abort(loop.ErrDrained)
	<-idle.Done()
	return nil
}

// RunOnce runs a job now, due or not, and counts as its run of this interval.
// txmq.ErrJobRunning: another run is under way; this one has not begun. An unknown
// name is a *txmq.FieldError that lists the names. It works with and without
// Run; ctx cancels it.
func (r *Runner) RunOnce(ctx context.Context, name string) (Result, error) {
	for _, s := range r.slots {
		if s.name == name {
			res, err := r.run(ctx, s, true)
			if err != nil {
				err = fmt.Errorf("job %s: %w", name, err)
			}
			return res, err
		}
	}
	return Result{}, &txmq.FieldError{Field: "job name", Value: name, Want: "one of " + strings.Join(r.Names(), ", ")}
}

// tick is a run by schedule. What went wrong has been reported by run.
func (r *Runner) tick(ctx context.Context, s *slot) { _, _ = r.run(ctx, s, false) }

// atOnce is a schedule whose first tick is now. Only cron's goroutine calls it.
type atOnce struct {
	cron.Schedule
	begun bool
}

// Next is t itself the first time.
func (a *atOnce) Next(t time.Time) time.Time {
	if !a.begun {
		a.begun = true
		return t
	}
	return a.Schedule.Next(t)
}
