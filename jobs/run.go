package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/model"
)

// run is one run of a job under its lease; always: also when it isn't due. A
// tick that is not ours gives txmq.ErrJobRunning and is not reported: it is no run.
func (r *Runner) run(ctx context.Context, s *slot, always bool) (Result, error) {
	if !s.busy.TryLock() {
		return Result{}, txmq.ErrJobRunning
	}
	defer s.busy.Unlock()

	start := time.Now()
	lease, ok, err := r.take(ctx, s, always)
	if err == nil && !ok {
		return Result{}, txmq.ErrJobRunning
	}
	var res Result
	if err == nil {
		res, err = r.hold(ctx, s, lease, start)
	}
	res.Took = time.Since(start)
	r.report(ctx, s, res, err)
	return res, err
}

// take bounds TakeJob: past the lease's length, having it would mean nothing.
func (r *Runner) take(ctx context.Context, s *slot, always bool) (model.JobLease, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease)
	defer cancel()
	return r.cfg.Store.TakeJob(ctx, s.name, r.owner, r.cfg.Lease, always)
}

// endTimeout bounds giving the lease back, also while stopping; without it the
// lease runs out by itself.
const endTimeout = 5 * time.Second

// hold runs the job while the lease is renewed, and gives the lease back.
func (r *Runner) hold(ctx context.Context, s *slot, lease model.JobLease, taken time.Time) (Result, error) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, done := context.WithTimeoutCause(work, s.timeout,
		fmt.Errorf("%w: the run took longer than %v", context.DeadlineExceeded, s.timeout))
	defer done()

	var res Result
	err := errors.New("the job ended its goroutine (runtime.Goexit)")
	var body, beat sync.WaitGroup
	beat.Go(func() { r.renew(work, lease, taken, cancel) })
	body.Go(func() { res, err = r.guard(work, s) })
	body.Wait()
	interrupted := work.Err() != nil
	if err != nil && interrupted {
		err = because(context.Cause(work), err)
	}
	cancel(nil)
	beat.Wait()

	next := pause(s.every, time.Since(taken))
	if res.More || interrupted {
		next = 0 // there is work left: for the next tick, whoever's it is
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer stop()
	if endErr := r.cfg.Store.EndJob(end, lease, next); endErr != nil && !errors.Is(err, txmq.ErrLeaseLost) {
		err = errors.Join(err, endErr)
	}
	return res, err
}

// because puts the reason of a cancelled context before what the job made of it.
func because(cause, err error) error {
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// pause is the time from a run's end until any replica may run the job again: a
// tenth less than the interval since its start, so that a replica whose timer
// is early by a moment doesn't lose its turn, and one whose ticks are shifted
// doesn't get one in between.
func pause(every, took time.Duration) time.Duration {
	return max(0, every-every/10-took)
}

// guard turns a panic into an error, and tells its stack to the log.
func (r *Runner) guard(ctx context.Context, s *slot) (res Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.cfg.Logger.ErrorContext(ctx, "job panicked",
				slog.String("job", s.name), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if err := fault.Point(fault.JobAfterLease); err != nil {
		return Result{}, err
	}
	return s.job.run(ctx)
}

// renew moves the lease's end at each third of it until ctx ends. It calls lose
// when another replica has the lease, and when no renewal got through until the
// lease must be over by the database's clock: counted from when the last one was
// sent, so never too late.
func (r *Runner) renew(ctx context.Context, lease model.JobLease, taken time.Time, lose context.CancelCauseFunc) {
	expire := time.AfterFunc(r.cfg.Lease-time.Since(taken), func() {
		lose(fmt.Errorf("%w: no renewal got through in %v", txmq.ErrLeaseLost, r.cfg.Lease))
	})
	defer expire.Stop()
	first := true
	renewal := func(ctx context.Context) (bool, error) {
		if first { // it has only just been taken
			first = false
			return false, nil
		}
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Lease/3)
		defer cancel()
		sent := time.Now()
		err := r.cfg.Store.RenewJob(ctx, lease, r.cfg.Lease)
		switch {
		case err == nil:
			expire.Reset(r.cfg.Lease - time.Since(sent))
		case errors.Is(err, txmq.ErrLeaseLost):
			lose(err)
		}
		return false, err
	}
	// Run's only error is none, and a renewal's has been dealt with.
	_ = loop.Loop{Step: renewal, Interval: r.cfg.Lease / 3}.Run(ctx)
}

func (r *Runner) report(ctx context.Context, s *slot, res Result, err error) {
	attrs := []slog.Attr{slog.String("job", s.name), slog.Int("done", res.Done), slog.Duration("took", res.Took)}
	switch {
	case err != nil:
		r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "job failed", append(attrs, slog.Any("error", err))...)
	case res.Done > 0:
		r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "job done", append(attrs, slog.Bool("more", res.More))...)
	default:
		r.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "job found nothing to do", attrs...)
	}
	r.cfg.Observe.Emit(ctx, txmq.JobRun{Job: s.name, Done: res.Done, Took: res.Took, Err: err})
}
