package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// Compensator finishes an event that its handler did not, without a message:
// it asks another system, or does the work from the service's own tables. What
// it does on tx commits together with the record's SUCCESS, or not at all; as a
// handler it must not end tx, run DDL on it, or keep it. r is the record as
// claimed: RetryCnt counts the runs before this one, Version is the fencing
// number to pass to systems outside this database.
//
// nil is SUCCESS. An error is FAIL, tried again after at least Stale; at
// MaxAttempts, and for consumer.Permanent, DEAD. consumer.Skip is SUCCESS with
// its reason and without what tx did. A panic counts as an error; a deadlock, a
// lost connection and a stop cost no attempt. Called one at a time. ctx ends at
// the Deadline, or when the job's run does; one that ignores it holds the job up.
type Compensator func(ctx context.Context, tx *gorm.DB, r model.ConsumeRecord) error

// CompensateConfig says which FAIL rows run again, and how often.
type CompensateConfig struct {
	// Every is the interval, in whole seconds. -1: only RunOnce runs it.
	// Default 1m.
	Every time.Duration

	// Stale is how long a FAIL row is over its next_retry_at before nobody
	// counts as redelivering it. Default 5m.
	Stale time.Duration

	// Longest bounds how long a row that was delivered again, or whose
	// Compensator failed, is left alone: as long as it had been idle, from Stale
	// to this, and then Stale again. So a consumer that is down for a day does not get
	// a copy every few minutes. Default 1h.
	Longest time.Duration

	// Deadline is what a Compensator gets for one row; less than Timeout.
	// Default 30s.
	Deadline time.Duration

	// MaxAttempts is after how many runs, those of the handler included, an
	// event that has a Compensator is DEAD. Default 16.
	MaxAttempts int

	// Batch is the most rows one query takes, 1 to 10000. Default 500.
	Batch int

	// Max is about the most rows one run looks at, at least Batch. Default 20
	// batches.
	Max int

	// Timeout cancels a run. Default 5m.
	Timeout time.Duration
}

func (c CompensateConfig) withDefaults() CompensateConfig {
	c.Every = cmp.Or(c.Every, time.Minute)
	c.Stale = cmp.Or(c.Stale, 5*time.Minute)
	c.Longest = cmp.Or(c.Longest, max(time.Hour, c.Stale))
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 16)
	c.Batch = cmp.Or(c.Batch, 500)
	c.Max = cmp.Or(c.Max, 20*c.Batch)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	return c
}

func (c CompensateConfig) validate(check checker) {
	check(validEvery(c.Every), "Compensate.Every", c.Every, "whole seconds, or -1 for never")
	check(c.Stale > 0, "Compensate.Stale", c.Stale, "more than 0")
	check(c.Longest >= c.Stale, "Compensate.Longest", c.Longest, "at least Compensate.Stale")
	check(c.MaxAttempts >= 1, "Compensate.MaxAttempts", c.MaxAttempts, "1 or more")
	check(c.Batch >= 1 && c.Batch <= 10_000, "Compensate.Batch", c.Batch, "1 to 10000")
	check(c.Max >= c.Batch, "Compensate.Max", c.Max, "at least Compensate.Batch")
	check(c.Timeout > 0, "Compensate.Timeout", c.Timeout, "more than 0")
	check(c.Deadline > 0 && c.Deadline < c.Timeout, "Compensate.Deadline", c.Deadline,
		fmt.Sprintf("more than 0 and less than Compensate.Timeout (%v)", c.Timeout))
}

// hasBroker: a half-filled one counts, and is found wanting by validate.
func (c Config) hasBroker() bool {
	return len(c.Broker.NameServers) > 0 || c.Broker.AccessKey != "" || c.Broker.SecretKey != ""
}

// validateWays checks by which way rows run again.
func (c Config) validateWays(check checker) error {
	var errs []error
	if c.hasBroker() {
		errs = append(errs, rocketmq.CheckBroker(c.Broker, "jobs.Config.Broker"))
	}
	for name, fn := range c.Compensators {
		check(name != "" && len(name) <= txmq.MaxEventIDBytes, "Compensators key", name, "a handler's name, 1 to 255 bytes")
		check(fn != nil, fmt.Sprintf("Compensators[%q]", name), nil, "a function")
	}
	for name, group := range c.Groups {
		check(name != "" && len(name) <= txmq.MaxEventIDBytes, "Groups key", name, "a handler's name, 1 to 255 bytes")
		errs = append(errs, rocketmq.CheckGroup(group, fmt.Sprintf("jobs.Config.Groups[%q]", name)))
	}
	return errors.Join(errs...)
}
