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

	// Broker is where compensate and the dead-letter intake find RocketMQ.
	// Without it there is no intake; compensate runs Compensators only, and the
	// other rows it finds due are put off and reported as its error.
	Broker txmq.Broker

	// Sweep puts PROCESSING rows whose lease is over to FAIL.
	Sweep SweepConfig

	// Compensate has FAIL rows run again that nobody seems to redeliver. Without
	// Broker and Compensators there is no such job.
	Compensate CompensateConfig

	// Compensators have compensate call them, by handler name (the column
	// consumer), instead of the broker. All replicas on a database have the same.
	Compensators map[string]Compensator

	// Groups names the consumer group of handlers that have a name of their own.
	// Default: of a handler "<group>:<topic>" what stands before the last ":",
	// and for those in DeadLetters their group.
	Groups map[string]string

	// DeadLetters are consumer groups whose dead-letter queues Run takes in: each
	// message found there without a record gets its DEAD row. Default: none.
	DeadLetters []DeadLetter

	// Lease is how long a job stays with a replica that died while running it;
	// a live one renews it at a third. At least 1s. Default 1m.
	Lease time.Duration

	// Drain is what a running job, and the intake, gets to end by itself when Run's context
	// ends; then it is cancelled. -1: nothing. Default 30s.
	Drain time.Duration

	// Observe receives JobRun after each run, and what the jobs emit: Swept,
	// Redriven, DeadLetterFound. Default: nobody looks.
	Observe txmq.Observe

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger

	client *slog.Logger // as Logger was given: one that nobody asked for would become the RocketMQ client's for good
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
	c.Compensate = c.Compensate.withDefaults()
	c.DeadLetters = withNames(c.DeadLetters)
	c.client = c.Logger
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	var errs fields
	check := errs.check
	check(c.Store != nil, "Store", nil, "what model.Open returns")
	check(c.Lease >= time.Second, "Lease", c.Lease, "at least 1s")
	check(c.Drain >= 0 || c.Drain == never, "Drain", c.Drain, "a duration, or -1 for none")
	check(validEvery(c.Sweep.Every), "Sweep.Every", c.Sweep.Every, "whole seconds, or -1 for never")
	check(c.Sweep.Batch >= 1 && c.Sweep.Batch <= 10_000, "Sweep.Batch", c.Sweep.Batch, "1 to 10000")
	check(c.Sweep.Max >= c.Sweep.Batch, "Sweep.Max", c.Sweep.Max, "at least Sweep.Batch")
	check(c.Sweep.Timeout > 0, "Sweep.Timeout", c.Sweep.Timeout, "more than 0")
	c.Compensate.validate(check)
	errs = append(errs, c.validateWays(check), c.validateDeadLetters(check))
	return errors.Join(errs...)
}

// fields are what is wrong, each a *txmq.FieldError.
type fields []error

func (f *fields) check(ok bool, field string, value any, want string) {
	if !ok {
		*f = append(*f, &txmq.FieldError{Field: "jobs.Config." + field, Value: value, Want: want})
	}
}

// checker notes a field that is not ok.
type checker func(ok bool, field string, value any, want string)

// never as an interval: no tick; as a drain: no wait.
const never time.Duration = -1

// validEvery: cron counts in seconds, and would cut a rest without a word.
func validEvery(d time.Duration) bool {
	return d == never || d >= time.Second && d%time.Second == 0
}
