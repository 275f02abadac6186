package consumer

import (
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/backoff"
)

// Backoff says how long a failed event waits before its next run. The broker
// rounds it up to one of its delay levels.
type Backoff struct {
	Min    time.Duration // after the first failure. Default 1s
	Max    time.Duration // never more. Default 1h, at most 2h: the broker's highest level
	Factor float64       // from one failure to the next. Default 2
	Jitter float64       // 0.2 spreads by ±20 %. Default 0.2; -1 for none
}

func (b Backoff) withDefaults() Backoff {
	if b.Min == 0 {
		b.Min = time.Second
	}
	if b.Max == 0 {
		b.Max = max(b.Min, time.Hour)
	}
	if b.Factor == 0 {
		b.Factor = 2
	}
	if b.Jitter == 0 {
		b.Jitter = 0.2
	}
	return b
}

func (b Backoff) check() (errs []error) {
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "consumer.Config.Backoff." + field, Value: value, Want: want})
	}
	if b.Min < 0 || b.Min > 2*time.Hour {
		bad("Min", b.Min, "up to 2h")
	}
	if b.Max < b.Min || b.Max > 2*time.Hour {
		bad("Max", b.Max, "Min up to 2h")
	}
	if b.Factor < 1 {
		bad("Factor", b.Factor, "1 or more")
	}
	if b.Jitter > 1 || b.Jitter < 0 && b.Jitter != -1 {
		bad("Jitter", b.Jitter, "0 to 1, or -1 for none")
	}
	return errs
}

// after is the wait before the run that follows attempt, which counts from 1.
func (b Backoff) after(attempt int) time.Duration { return backoff.Schedule(b).After(attempt) }
