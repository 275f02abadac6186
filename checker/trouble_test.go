package checker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// bare is a half of other code.
func bare() *primitive.MessageExt {
	m := &primitive.MessageExt{}
	m.Topic = "paid"
	return m
}

func TestCheckInTrouble(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		t.Run("B09 a check that panics or ends its goroutine is Unknown, the next ones work", func(t *testing.T) {
			for _, bad := range []func(){func() { panic("no") }, runtime.Goexit, func() { var h *half; _ = h.times }} {
				c := b.checker(t, func(cfg *Config) {
					cfg.Foreign = func(*primitive.MessageExt) txmq.Verdict { bad(); return txmq.Commit }
				})
				b.want(t, c.Check(t.Context(), bare()), txmq.Unknown, ReasonPanic)
				for range 5 {
					a := attempt("next")
					b.want(t, c.Check(t.Context(), b.half(a, 2, old)), txmq.Rollback, ReasonFenced)
				}
			}
		})
		t.Run("B09 a check that hangs is Unknown in time, the next ones work", func(t *testing.T) {
			release := make(chan struct{})
			c := b.checker(t, func(cfg *Config) {
				cfg.Timeout = 5 * time.Millisecond
				cfg.Foreign = func(*primitive.MessageExt) txmq.Verdict { <-release; return txmq.Commit }
			})
			defer close(release)
			for range maxRunning {
				b.want(t, c.Check(t.Context(), bare()), txmq.Unknown, ReasonTimeout)
				if took := b.seen.last(t).Took; took > 2*time.Second {
					t.Errorf("took %v, want about 5ms", took)
				}
			}
			b.want(t, c.Check(t.Context(), bare()), txmq.Unknown, ReasonBusy)
		})
		t.Run("B09 a pool without connections is Unknown in time", func(t *testing.T) {
			pool, err := b.db.DB()
			must(t, err)
			pool.SetMaxOpenConns(1)
			defer pool.SetMaxOpenConns(0)
			held, err := pool.Conn(t.Context())
			must(t, err)
			c := b.checker(t, func(cfg *Config) { cfg.Timeout = 50 * time.Millisecond })
			a := attempt("no connection")
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Unknown, ReasonTimeout)
			must(t, held.Close())
			c = b.checker(t)
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Rollback, ReasonLastCheck)
		})
		t.Run("an observer that panics changes no answer", func(t *testing.T) {
			c := b.checker(t, func(cfg *Config) { cfg.Observe = func(context.Context, txmq.Event) { panic("observer") } })
			if v := c.Check(t.Context(), b.half(attempt("observed"), 2, old)); v != txmq.Rollback {
				t.Errorf("Check = %v, want rollback", v)
			}
		})
		t.Run("no message is Unknown", func(t *testing.T) {
			if v := b.checker(t).Check(t.Context(), nil); v != txmq.Unknown {
				t.Errorf("Check(nil) = %v, want unknown", v)
			}
		})
		t.Run("B15 a check after Close is Unknown", func(t *testing.T) {
			c := b.checker(t)
			a := attempt("closed")
			b.commit(t, a, model.RouteHalf)
			must(t, c.Close(t.Context()))
			b.want(t, c.Check(t.Context(), b.half(a, 2, old)), txmq.Unknown, ReasonClosed)
		})
		t.Run("B15 a check after the pool is closed is Unknown", func(t *testing.T) { // last: it takes the database away
			c := b.checker(t)
			pool, err := b.db.DB()
			must(t, err)
			must(t, pool.Close())
			b.want(t, c.Check(t.Context(), b.half(attempt("no database"), 15, old)), txmq.Unknown, ReasonDatabase)
			if b.seen.last(t).Err == nil {
				t.Error("event has no error")
			}
		})
	})
}

func TestCloseWaitsForChecks(t *testing.T) {
	t.Parallel()
	b := &bundle{seen: new(recorder)}
	b.db, b.store = open(t, databases[0].dials(t), nil)
	release := make(chan struct{})
	c := b.checker(t, func(cfg *Config) {
		cfg.Timeout = time.Millisecond
		cfg.Foreign = func(*primitive.MessageExt) txmq.Verdict { <-release; return txmq.Commit }
	})
	b.want(t, c.Check(t.Context(), bare()), txmq.Unknown, ReasonTimeout)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a check under way = %v, want %v", err, context.DeadlineExceeded)
	}
	close(release)
	must(t, c.Close(t.Context()))
}

func TestNewReportsEveryField(t *testing.T) {
	t.Parallel()
	_, store := open(t, databases[0].dials(t), nil)
	tests := []struct {
		name   string
		cfg    Config
		fields []string
	}{
		{"nothing", Config{}, []string{"Store"}},
		{"only the store", Config{Store: store}, nil},
		{
			"everything",
			Config{FenceAfter: -1, MaxChecks: 1, Interval: -1, Timeout: -1, Group: string(make([]byte, 256))},
			[]string{"Store", "Group", "MaxChecks", "Interval", "Timeout", "FenceAfter"},
		},
		{
			"B10 immunity as long as all checks",
			Config{Store: store, FenceAfter: 3 * time.Second, MaxChecks: 3, Interval: time.Second},
			[]string{"FenceAfter"},
		},
		{"B10 immunity longer than the default checks", Config{Store: store, FenceAfter: 8 * time.Minute}, []string{"FenceAfter"}},
		{"B10 immunity just short enough", Config{Store: store, FenceAfter: 3*time.Second - 1, MaxChecks: 3, Interval: time.Second}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tt.cfg)
			var got []string
			for _, e := range parts(err) {
				var f *txmq.FieldError
				if !errors.As(e, &f) {
					t.Fatalf("New = %v, want field errors", e)
				}
				got = append(got, f.Field[len("checker.Config."):])
			}
			if !reflect.DeepEqual(got, tt.fields) {
				t.Errorf("New = %v, want fields %v", err, tt.fields)
			}
		})
	}
}

func parts(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func TestResolve(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		resolve := func(a model.Attempt) (txmq.Verdict, error) { return Resolve(t.Context(), b.store, a) }
		want := func(a model.Attempt, verdict txmq.Verdict, cause error) {
			t.Helper()
			v, err := resolve(a)
			if v != verdict || !errors.Is(err, cause) {
				t.Errorf("Resolve = %v, %v, want %v, %v", v, err, verdict, cause)
			}
		}
		committed, absent, open := attempt("committed"), attempt("absent"), attempt("open")
		b.commit(t, committed, model.RouteHalf)
		want(committed, txmq.Commit, nil)
		want(absent, txmq.Rollback, nil)
		want(absent, txmq.Rollback, nil)
		if _, err := b.logged(t, absent, model.RouteHalf); !errors.Is(err, txmq.ErrFenced) {
			t.Errorf("Log after Resolve = %v, want %v", err, txmq.ErrFenced)
		}

		tx, err := b.logged(t, open, model.RouteHalf)
		must(t, err)
		want(open, txmq.Unknown, model.ErrLocked)
		must(t, tx.Commit(t.Context()))
		want(open, txmq.Commit, nil)

		now, err := b.store.Now(t.Context())
		must(t, err)
		must(t, b.store.SetLogPurgedBefore(t.Context(), now.Add(24*time.Hour)))
		purged := attempt("purged")
		want(purged, txmq.Unknown, errPurged)
		b.wantNoRow(t, purged)
	})
}

func TestLogNamesTheEventAndNoBody(t *testing.T) {
	t.Parallel()
	b := &bundle{seen: new(recorder)}
	b.db, b.store = open(t, databases[0].dials(t), nil)
	var lines bytes.Buffer
	c := b.checker(t, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })

	t.Run("B10 a fence and a foreign half are told with the event ID", func(t *testing.T) {
		fenced, foreign := b.half(attempt("pay:1"), 15, old), b.half(attempt("pay:2"), 15, old)
		fenced.Body = []byte("card number")
		foreign.Body = fenced.Body
		foreign.WithProperty(txmq.PropertyDatabaseID, "elsewhere")
		c.Check(t.Context(), fenced)
		c.Check(t.Context(), foreign)
		for _, want := range []string{"event_id=pay:1", "event_id=pay:2", ReasonForeignDB} {
			if !strings.Contains(lines.String(), want) {
				t.Errorf("log lacks %q:\n%s", want, &lines)
			}
		}
		if strings.Contains(lines.String(), "card number") {
			t.Errorf("log has a body:\n%s", &lines)
		}
	})
}
