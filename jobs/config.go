package jobs

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// Config says which jobs run and how often. Only the fields marked Required
// must be set; a zero value elsewhere means the default.
type Config struct {
	// Store is the database whose tables the jobs look after. Required.
	Store *model.Store

	// Broker is where jobs that send find RocketMQ. The sweep sends nothing.
	Broker txmq.Broker

	// Sweep puts PROCESSING rows whose lease is over to FAIL.
	Sweep SweepConfig

	// Lease is how long a job stays with a replica that died while running it;
	// a live one renews it at a third. At least 1s. Default 1m.
	Lease time.Duration

	// Drain is what a running job gets to end by itself when Run's context
	// ends; then it is cancelled. -1: nothing. Default 30s.
	Drain time.Duration

	// Observe receives JobRun after each run, and what the jobs emit, such as
	// Swept. Default: nobody looks.
	Observe txmq.Observe

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

// SweepConfig bounds the sweep.
type SweepConfig struct {
	// Every is the interval, in whole seconds. -1: only RunOnce runs it.
	// Default 1m.
	Every time.Duration

	// Batch is the most rows one query takes, 1 to 10000. Default 500.
	Batch int

	// Max is about the most rows one run changes, at least Batch; the rest is
	// for the next tick, whichever replica's it is. Default 20 batches.
	Max int

	// Timeout cancels a run. Default 1m.
	Timeout time.Duration
}

const defaultTimeout = time.Minute

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.Drain = cmp.Or(c.Drain, 30*time.Second)
	c.Sweep.Every = cmp.Or(c.Sweep.Every, time.Minute)
	c.Sweep.Batch = cmp.Or(c.Sweep.Batch, 500)
	c.Sweep.Max = cmp.Or(c.Sweep.Max, 20*c.Sweep.Batch)
	c.Sweep.Timeout = cmp.Or(c.Sweep.Timeout, defaultTimeout)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &txmq.FieldError{Field: "jobs.Config." + field, Value: value, Want: want})
		}
	}
	check(c.Store != nil, "Store", nil, "what model.Open returns")
	check(c.Lease >= time.Second, "Lease", c.Lease, "at least 1s")
	check(c.Drain >= 0 || c.Drain == never, "Drain", c.Drain, "a duration, or -1 for none")
	check(validEvery(c.Sweep.Every), "Sweep.Every", c.Sweep.Every, "whole seconds, or -1 for never")
	check(c.Sweep.Batch >= 1 && c.Sweep.Batch <= 10_000, "Sweep.Batch", c.Sweep.Batch, "1 to 10000")
	check(c.Sweep.Max >= c.Sweep.Batch, "Sweep.Max", c.Sweep.Max, "at least Sweep.Batch")
	check(c.Sweep.Timeout > 0, "Sweep.Timeout", c.Sweep.Timeout, "more than 0")
	return errors.Join(errs...)
}

// never as an interval: no tick; as a drain: no wait.
const never time.Duration = -1

// validEvery: cron counts in seconds, and would cut a rest without a word.
func validEvery(d time.Duration) bool {
	return d == never || d >= time.Second && d%time.Second == 0
}
