package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq"
)

func TestConfigReportsEveryBadField(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Group: "bad group!", Workers: -1, MaxAttempts: -1, Deadline: 2 * time.Minute, Lease: time.Minute,
		ConsumeTimeout: 90 * time.Second, ClaimWait: -1, Drain: -1, MissingID: 9,
		Backoff:  Backoff{Min: time.Hour, Max: time.Minute, Factor: 0.5, Jitter: 3},
		Handlers: []Handler{{}, {Topic: "a", Do: Atomic(pay)}, {Topic: "a", Name: strings.Repeat("n", 256), Do: Atomic(nil)}},
	})
	for _, field := range []string{
		"consumer.Config.Store", "consumer.Config.Broker", "consumer.Config.Group", "consumer.Config.Workers",
		"consumer.Config.MaxAttempts", "consumer.Config.Deadline", "consumer.Config.ConsumeTimeout",
		"consumer.Config.ClaimWait", "consumer.Config.Drain", "consumer.Config.MissingID",
		"consumer.Config.Backoff.Max", "consumer.Config.Backoff.Factor", "consumer.Config.Backoff.Jitter",
		"Handlers[0].Topic", "Handlers[0].Do", "Handlers[2].Topic", "Handlers[2].Name", "Handlers[2].Do",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s:\n%v", field, err)
		}
	}
	var field *txmq.FieldError
	if !errors.As(err, &field) {
		t.Errorf("error = %T, want *txmq.FieldError in it", err)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Jitter: -1}.withDefaults()
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 5000: time.Hour} {
		if got := b.after(attempt); got != want {
			t.Errorf("after(%d) = %v, want %v", attempt, got, want)
		}
	}
	spread := Backoff{}.withDefaults()
	for range 100 {
		if got := spread.after(1); got < 800*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("after(1) = %v, want 1s ±20 %%", got)
		}
	}
}

func TestNamesOfHandlersDiffer(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Group: "g", Handlers: []Handler{
		{Topic: "order-paid", Name: "shares", Do: Atomic(pay)}, {Topic: "order-created", Name: "shares", Do: Atomic(pay)},
	}})
	if err == nil || !strings.Contains(err.Error(), `Handlers[1].Name is "shares"`) {
		t.Errorf("New = %v, want the second name refused", err)
	}
}

// namesField tells whether a *txmq.FieldError in err is about the field.
func namesField(err error, field string) bool {
	switch e := err.(type) { //nolint:errorlint // it looks into joined ones itself
	case *txmq.FieldError:
		return e.Field == field
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return namesField(err, field) })
	case interface{ Unwrap() error }:
		return namesField(e.Unwrap(), field)
	default:
		return false
	}
}
