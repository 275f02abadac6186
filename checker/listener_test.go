package checker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/localtx"
	"github.com/txmq/txmq/model"
)

const (
	commit   = primitive.CommitMessageState
	rollback = primitive.RollbackMessageState
	notKnown = primitive.UnkonwnState
)

var errBusiness = errors.New("the business said no")

// effect is what a local transaction does in these tests.
type effect struct {
	ID    int64 `gorm:"primaryKey"`
	Event string
}

func apply(tx *gorm.DB, m *primitive.Message) error {
	return tx.Create(&effect{Event: m.GetProperty(txmq.PropertyEventID)}).Error
}

// listener makes one whose local function is apply and then fn, if there is one.
func (b *bundle) listener(tb testing.TB, fn func(*gorm.DB) error, change ...func(*Config)) *Listener {
	tb.Helper()
	must(tb, b.db.AutoMigrate(&effect{}))
	cfg := Config{Store: b.store, Observe: b.seen.observe}
	for _, f := range change {
		f(&cfg)
	}
	l, err := NewListener(cfg, func(tx *gorm.DB, m *primitive.Message) error {
		if err := apply(tx, m); err != nil || fn == nil {
			return err
		}
		return fn(tx)
	})
	must(tb, err)
	tb.Cleanup(func() { must(tb, l.Close(context.Background())) })
	return l
}

// sent is a message as the client has it once the half is stored.
func sent(topic string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte("body"))
	m.WithProperty(primitive.PropertyTransactionPrepared, "true")
	m.WithProperty(primitive.PropertyProducerGroup, "orders")
	m.TransactionId = "C0A8000100002A9F0000000000000001"
	return m
}

func stamped(tb testing.TB, l *Listener, event string) *primitive.Message {
	tb.Helper()
	m := sent("paid")
	must(tb, l.Stamp(m, event))
	return m
}

// asked is the check-back of a half, as the broker sends it.
func asked(m *primitive.Message, times string) *primitive.MessageExt {
	ext := &primitive.MessageExt{MsgId: m.TransactionId}
	ext.Topic, ext.Body = m.Topic, m.Body
	for k, v := range m.GetProperties() {
		ext.WithProperty(k, v)
	}
	ext.WithProperty(primitive.PropertyTranscationCheckTimes, times)
	return ext
}

// wantEffects: so many effects, and log rows that say COMMITTED, of an event.
func (b *bundle) wantEffects(tb testing.TB, event string, want int64) {
	tb.Helper()
	var effects, rows int64
	must(tb, b.db.Model(&effect{}).Where("event = ?", event).Count(&effects).Error)
	must(tb, b.db.Model(&model.LogEntry{}).Where("event_id = ? AND state = ?", event, model.Committed).Count(&rows).Error)
	if effects != want || rows != want {
		tb.Errorf("%s has %d effects and %d rows, want %d of each", event, effects, rows, want)
	}
}

func wantState(tb testing.TB, got, want primitive.LocalTransactionState) {
	tb.Helper()
	if got != want {
		tb.Errorf("state = %v, want %v", got, want)
	}
}

func TestListenerExecutes(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		l := b.listener(t, nil)
		failing := b.listener(t, func(*gorm.DB) error { return errBusiness })

		t.Run("commit, with the row that its check-back needs", func(t *testing.T) {
			m := stamped(t, l, "pay:1")
			wantState(t, l.ExecuteLocalTransaction(m), commit)
			b.wantEffects(t, "pay:1", 1)
			wantState(t, l.CheckLocalTransaction(asked(m, "1")), commit)
			e, err := b.row(t, m.GetProperty(txmq.PropertyAttempt))
			must(t, err)
			if e.State != model.Committed || e.Route != model.RouteHalf || e.EventID != "pay:1" || e.Topic != "paid" || e.ProducerGroup != "orders" {
				t.Errorf("row = %+v, want it COMMITTED by the half's way", e)
			}
			ended := b.seen.ended(t)
			if ended.Verdict != txmq.Commit || ended.Err != nil || ended.EventID != "pay:1" || ended.Attempt != e.Attempt {
				t.Errorf("event = %+v, want the commit of pay:1", ended)
			}
		})
		t.Run("error of the function rolls back, and the event can be sent again", func(t *testing.T) {
			m := stamped(t, failing, "pay:2")
			wantState(t, failing.ExecuteLocalTransaction(m), rollback)
			b.wantEffects(t, "pay:2", 0)
			if err := b.seen.ended(t).Err; !errors.Is(err, errBusiness) {
				t.Errorf("event's error = %v, want %v", err, errBusiness)
			}
			wantState(t, l.ExecuteLocalTransaction(stamped(t, l, "pay:2")), commit)
			wantState(t, l.CheckLocalTransaction(asked(m, "15")), rollback)
			b.wantEffects(t, "pay:2", 1)
		})
		t.Run("panic of the function rolls back and goes no further", func(t *testing.T) {
			var lines bytes.Buffer
			panicking := b.listener(t, func(*gorm.DB) error { panic("no") }, func(c *Config) {
				c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			})
			m := stamped(t, panicking, "pay:3")
			wantState(t, panicking.ExecuteLocalTransaction(m), rollback)
			b.wantEffects(t, "pay:3", 0)
			if err := b.seen.ended(t).Err; err == nil || !strings.Contains(err.Error(), "panicked: no") {
				t.Errorf("event's error = %v, want the panic", err)
			}
			for _, want := range []string{"local transaction panicked", "listener_test.go", "event_id=pay:3"} {
				if !strings.Contains(lines.String(), want) {
					t.Errorf("log lacks %q:\n%s", want, &lines)
				}
			}
			if strings.Contains(lines.String(), "body") {
				t.Errorf("log has the body:\n%s", &lines)
			}
		})
		t.Run("function that ends its goroutine rolls back, a check-back settles", func(t *testing.T) {
			leaving := b.listener(t, func(*gorm.DB) error { runtime.Goexit(); return nil })
			m := stamped(t, leaving, "pay:4")
			var wg sync.WaitGroup
			wg.Go(func() { leaving.ExecuteLocalTransaction(m) })
			wg.Wait()
			b.wantEffects(t, "pay:4", 0)
			wantState(t, leaving.CheckLocalTransaction(asked(m, "15")), rollback)
			if e := b.seen.ended(t); e.EventID != "pay:4" || !errors.Is(e.Err, localtx.ErrNotReturned) {
				t.Errorf("event = %+v, want %v", e, localtx.ErrNotReturned)
			}
		})
		t.Run("event that has committed is a duplicate", func(t *testing.T) {
			wantState(t, l.ExecuteLocalTransaction(stamped(t, l, "pay:5")), commit)
			wantState(t, l.ExecuteLocalTransaction(stamped(t, l, "pay:5")), rollback)
			if err := b.seen.ended(t).Err; !errors.Is(err, txmq.ErrDuplicateEvent) {
				t.Errorf("event's error = %v, want %v", err, txmq.ErrDuplicateEvent)
			}
			b.wantEffects(t, "pay:5", 1)
		})
		t.Run("B04 attempt that was fenced before its BEGIN", func(t *testing.T) {
			m := stamped(t, l, "pay:6")
			wantState(t, l.CheckLocalTransaction(asked(m, "15")), rollback)
			wantState(t, l.ExecuteLocalTransaction(m), rollback)
			if err := b.seen.ended(t).Err; !errors.Is(err, txmq.ErrFenced) {
				t.Errorf("event's error = %v, want %v", err, txmq.ErrFenced)
			}
			b.wantEffects(t, "pay:6", 0)
			must(t, l.Stamp(m, "pay:6")) // sent again
			wantState(t, l.ExecuteLocalTransaction(m), commit)
			b.wantEffects(t, "pay:6", 1)
		})
		t.Run("B69 rolled back, rollback lost, sent again with another body", func(t *testing.T) {
			first := stamped(t, failing, "pay:7")
			failing.ExecuteLocalTransaction(first) // and its answer is lost
			second := stamped(t, l, "pay:7")
			wantState(t, l.ExecuteLocalTransaction(second), commit)
			wantState(t, l.CheckLocalTransaction(asked(first, "15")), rollback)
			wantState(t, l.CheckLocalTransaction(asked(second, "1")), commit)
		})
		t.Run("B75 function that ends its transaction itself commits nothing", func(t *testing.T) {
			ending := b.listener(t, func(tx *gorm.DB) error { return tx.Commit().Error })
			wantState(t, ending.ExecuteLocalTransaction(stamped(t, ending, "pay:8")), rollback)
			if err := b.seen.ended(t).Err; !errors.Is(err, txmq.ErrTxMisused) {
				t.Errorf("event's error = %v, want %v", err, txmq.ErrTxMisused)
			}
			b.wantEffects(t, "pay:8", 0)
		})
		t.Run("B12 function knows that it is inside", func(t *testing.T) {
			inside := false
			looking := b.listener(t, func(tx *gorm.DB) error {
				inside = localtx.Inside(tx.Statement.Context, b.store)
				return nil
			})
			wantState(t, looking.ExecuteLocalTransaction(stamped(t, looking, "pay:9")), commit)
			if !inside {
				t.Error("a send of txmq's producer inside the function would not be refused")
			}
		})
		t.Run("an observer that panics changes no answer", func(t *testing.T) {
			watched := b.listener(t, nil, func(c *Config) { c.Observe = func(context.Context, txmq.Event) { panic("observer") } })
			wantState(t, watched.ExecuteLocalTransaction(stamped(t, watched, "pay:10")), commit)
			b.wantEffects(t, "pay:10", 1)
		})
		t.Run("no message", func(t *testing.T) {
			wantState(t, l.ExecuteLocalTransaction(nil), notKnown)
			wantState(t, l.CheckLocalTransaction(nil), notKnown)
		})
	})
}

// What has no stamp of this database could not be answered for later.
func TestListenerRefuses(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		var lines bytes.Buffer
		l := b.listener(t, func(*gorm.DB) error { t.Error("function ran"); return nil }, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		})
		tests := []struct {
			name   string
			change func(*primitive.Message)
			want   error
			says   string
		}{
			{"no stamp", func(m *primitive.Message) { m.WithProperties(map[string]string{}) }, nil, "TXMQ_DB is missing"},
			{"an event ID alone", func(m *primitive.Message) {
				m.WithProperties(map[string]string{txmq.PropertyEventID: "event"})
			}, nil, "TXMQ_DB is missing"},
			{"stamped without event ID", func(m *primitive.Message) { m.RemoveProperty(txmq.PropertyEventID) }, txmq.ErrMissingID, "event ID"},
			{"B78 stamped for another database", func(m *primitive.Message) { m.WithProperty(txmq.PropertyDatabaseID, "elsewhere") }, errForeignDB, "another database"},
			{"an attempt that no row can have", func(m *primitive.Message) {
				m.WithProperty(txmq.PropertyAttempt, strings.Repeat("a", maxAttempt+1))
			}, errMalformed, "too long"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				lines.Reset()
				m := stamped(t, l, "event")
				tt.change(m)
				wantState(t, l.ExecuteLocalTransaction(m), rollback)
				err := b.seen.ended(t).Err
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("event's error = %v, want %v", err, tt.want)
				}
				for _, want := range []string{tt.says, "Stamp", "level=ERROR", "refused"} {
					if !strings.Contains(lines.String(), want) {
						t.Errorf("log lacks %q:\n%s", want, &lines)
					}
				}
			})
		}
		b.wantEffects(t, "event", 0)
	})
}

// Another language's half may have database and event, and no attempt.
func TestListenerGoesByEventWithoutAttempt(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		l := b.listener(t, nil)
		failing := b.listener(t, func(*gorm.DB) error { return errBusiness })
		bare := func(event string) *primitive.Message {
			m := stamped(t, l, event)
			m.RemoveProperty(txmq.PropertyAttempt)
			return m
		}
		t.Run("its check-back finds the row", func(t *testing.T) {
			m := bare("by event")
			wantState(t, l.ExecuteLocalTransaction(m), commit)
			wantState(t, l.CheckLocalTransaction(asked(m, "1")), commit)
			b.wantEffects(t, "by event", 1)
		})
		t.Run("the same event on another topic is another", func(t *testing.T) {
			m := bare("by event")
			m.Topic = "shipped"
			wantState(t, l.CheckLocalTransaction(asked(m, "1")), notKnown)
			wantState(t, l.ExecuteLocalTransaction(m), commit)
		})
		t.Run("a call that is rolled back and told so can be repeated", func(t *testing.T) {
			wantState(t, failing.ExecuteLocalTransaction(bare("again")), rollback)
			wantState(t, l.ExecuteLocalTransaction(bare("again")), commit)
		})
		t.Run("a fence is for the event, for ever", func(t *testing.T) {
			wantState(t, l.CheckLocalTransaction(asked(bare("lost"), "15")), rollback)
			wantState(t, l.ExecuteLocalTransaction(bare("lost")), rollback)
			wantState(t, l.ExecuteLocalTransaction(stamped(t, l, "lost")), commit) // and a stamp is the way out
		})
	})
}

func TestForeignHalfWithEventID(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		m := &primitive.MessageExt{}
		m.Topic = "paid"
		m.WithProperty(txmq.PropertyEventID, "for our consumers")
		m.WithProperty(primitive.PropertyTranscationCheckTimes, "15")
		b.want(t, b.checker(t).Check(t.Context(), m), txmq.Unknown, ReasonNotOurs)
		asking := b.checker(t, func(c *Config) { c.Foreign = func(*primitive.MessageExt) txmq.Verdict { return txmq.Commit } })
		b.want(t, asking.Check(t.Context(), m), txmq.Commit, ReasonForeign)
	})
}

func TestListenerCloses(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		running, release := make(chan struct{}), make(chan struct{})
		l := b.listener(t, func(*gorm.DB) error { close(running); <-release; return nil })
		m, late := stamped(t, l, "running"), stamped(t, l, "late")
		state := make(chan primitive.LocalTransactionState, 1)
		var wg sync.WaitGroup
		wg.Go(func() { state <- l.ExecuteLocalTransaction(m) })
		<-running

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBusiness)
		if err := l.Close(ctx); !errors.Is(err, errBusiness) {
			t.Errorf("Close with a local transaction under way = %v, want %v", err, errBusiness)
		}
		t.Run("B15 what comes after Close is rolled back, a check is Unknown", func(t *testing.T) {
			wantState(t, l.ExecuteLocalTransaction(late), rollback)
			if err := b.seen.ended(t).Err; !errors.Is(err, txmq.ErrClosed) {
				t.Errorf("event's error = %v, want %v", err, txmq.ErrClosed)
			}
			wantState(t, l.CheckLocalTransaction(asked(late, "15")), notKnown)
		})
		close(release)
		must(t, l.Close(t.Context()))
		wantState(t, <-state, commit)
		wg.Wait()
		b.wantEffects(t, "running", 1)
		b.wantEffects(t, "late", 0)
	})
}

func TestStamp(t *testing.T) {
	t.Parallel()
	b := &bundle{seen: new(recorder)}
	b.db, b.store = open(t, databases[0].dials(t), nil)
	l := b.listener(t, nil)

	t.Run("each stamp is a new attempt", func(t *testing.T) {
		m := primitive.NewMessage("paid", []byte("a"))
		m.WithProperty("mine", "kept")
		must(t, l.Stamp(m, "first"))
		first := m.GetProperties()
		must(t, l.Stamp(m, "second"))
		second := m.GetProperties()
		if first[txmq.PropertyAttempt] == second[txmq.PropertyAttempt] || second[txmq.PropertyEventID] != "second" ||
			second[txmq.PropertyDatabaseID] != b.store.DatabaseID() || len(second[txmq.PropertyBorn]) != 13 || second["mine"] != "kept" {
			t.Errorf("stamps = %v, then %v", first, second)
		}
	})
	tests := []struct {
		name, event string
		m           *primitive.Message
		fields      []string
	}{
		{"B30 no event ID", "", primitive.NewMessage("paid", nil), []string{"eventID"}},
		{"B29 event ID that is too long", strings.Repeat("e", 256), primitive.NewMessage("paid", nil), []string{"eventID"}},
		{"event ID with a separator", "a\x01b", primitive.NewMessage("paid", nil), []string{"eventID"}},
		{"no message", "a", nil, []string{"m"}},
		{"B11 delay level", "a", primitive.NewMessage("paid", nil).WithDelayTimeLevel(3), []string{"m, property DELAY"}},
		{"a property that forges others", "", forging(), []string{"eventID", `m, property "note"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := l.Stamp(tt.m, tt.event)
			var got []string
			for _, e := range parts(err) {
				var f *txmq.FieldError
				if !errors.As(e, &f) {
					t.Fatalf("Stamp = %v, want field errors", e)
				}
				got = append(got, strings.TrimPrefix(f.Field, "checker.Listener.Stamp "))
			}
			if !slices.Equal(got, tt.fields) {
				t.Errorf("Stamp = %v, want fields %q", err, tt.fields)
			}
			if tt.m != nil && tt.m.GetProperty(txmq.PropertyAttempt) != "" {
				t.Error("the message is stamped all the same")
			}
		})
	}
}

func forging() *primitive.Message {
	m := primitive.NewMessage("paid", nil)
	m.WithProperty("note", "1\x02"+txmq.PropertyAttempt+"\x01forged")
	return m
}

func TestNewListenerReportsEveryField(t *testing.T) {
	t.Parallel()
	_, err := NewListener(Config{MaxChecks: 1}, nil)
	for _, want := range []string{"Store", "MaxChecks", "NewListener fn"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewListener = %v, want %s named", err, want)
		}
	}
}
