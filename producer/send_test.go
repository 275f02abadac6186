package producer

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

var errBusiness = errors.New("no money left")

func one(body string) []string { return []string{body} }

var none = []string{}

func TestSendInTransaction(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		t.Run("commit shows the message", func(t *testing.T) {
			r, err := b.send(t, message("pay:1", "a"))
			wantError(t, err, nil)
			wantReceipt(t, r, txmq.Commit, true)
			b.want(t, "pay:1", one("a"), one("a"))
			var names []string
			for _, e := range b.events.of("pay:1") {
				names = append(names, reflect.TypeOf(e).Name())
			}
			if want := []string{"HalfSent", "SendEnded"}; !slices.Equal(names, want) {
				t.Errorf("events = %v, want %v", names, want)
			}
		})
		t.Run("error of the function rolls back", func(t *testing.T) {
			m := message("pay:2", "a")
			r, err := b.p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
				return errors.Join(apply(m)(tx), errBusiness)
			})
			wantError(t, err, errBusiness)
			wantReceipt(t, r, txmq.Rollback, true)
			b.want(t, "pay:2", none, none)
		})
		t.Run("panic of the function rolls back, is told, and goes on", func(t *testing.T) {
			m := message("pay:3", "a")
			func() {
				defer func() {
					if cause := recover(); cause != any(errBusiness) {
						t.Errorf("recovered %v, want %v", cause, errBusiness)
					}
				}()
				_, _ = b.p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
					must(t, apply(m)(tx))
					panic(errBusiness)
				})
			}()
			b.want(t, "pay:3", none, none)
			if open := b.broker.open(); len(open) != 0 {
				t.Errorf("%d halves are open, want the broker to be told", len(open))
			}
		})
		t.Run("function that ends its goroutine rolls back, a check-back settles", func(t *testing.T) {
			m := message("pay:4", "a")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = b.p.SendInTransaction(context.Background(), m, func(tx *gorm.DB) error {
					if err := apply(m)(tx); err == nil {
						runtime.Goexit()
					}
					return nil
				})
			}()
			<-gone
			b.settle(t)
			b.want(t, "pay:4", none, none)
		})
		t.Run("event ID and attempt are made", func(t *testing.T) {
			r, err := b.send(t, message("", "a"))
			wantError(t, err, nil)
			for _, id := range []string{r.EventID, r.Attempt} {
				if u, err := uuid.Parse(id); err != nil || u.Version() != 7 {
					t.Errorf("%q is no UUIDv7", id)
				}
			}
			h := b.broker.shown[len(b.broker.shown)-1]
			if h.m.EventID != r.EventID || h.props[txmq.PropertyAttempt] != r.Attempt ||
				h.props[txmq.PropertyDatabaseID] != b.store.DatabaseID() || len(h.props[txmq.PropertyBorn]) != 13 {
				t.Errorf("half = %+v, want what the receipt %+v says", h, r)
			}
		})
		t.Run("event that has committed is a duplicate", func(t *testing.T) {
			_, err := b.send(t, message("pay:5", "a"))
			wantError(t, err, nil)
			r, err := b.p.SendInTransaction(t.Context(), message("pay:5", "b"), func(*gorm.DB) error {
				t.Error("function ran")
				return nil
			})
			wantError(t, err, txmq.ErrDuplicateEvent)
			wantReceipt(t, r, txmq.Rollback, true)
			b.want(t, "pay:5", one("a"), one("a"))
		})
		t.Run("B79 one operation, two topics", func(t *testing.T) {
			m := message("pay:6", "a")
			_, err := b.send(t, m)
			wantError(t, err, nil)
			m.Topic = "shipped"
			_, err = b.send(t, m)
			wantError(t, err, nil)
			b.want(t, "pay:6", []string{"a", "a"}, []string{"a", "a"})
		})
		t.Run("function that ends its transaction itself commits nothing", func(t *testing.T) {
			m := message("pay:7", "a")
			_, err := b.p.SendInTransaction(t.Context(), m, func(tx *gorm.DB) error {
				must(t, apply(m)(tx))
				return tx.Commit().Error
			})
			wantError(t, err, txmq.ErrTxMisused)
			b.want(t, "pay:7", none, none)
		})
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		mustNotRun := func(*gorm.DB) error { t.Error("function ran"); return nil }
		sends := func() int { b.broker.mu.Lock(); defer b.broker.mu.Unlock(); return b.broker.sends }

		t.Run("B11 transactional and delayed", func(t *testing.T) {
			before := sends()
			m := message("delayed", "a")
			m.DelayLevel = 3
			_, err := b.p.SendInTransaction(t.Context(), m, mustNotRun)
			var f *txmq.FieldError
			if !errors.As(err, &f) || f.Field != "txmq.Message.DelayLevel" {
				t.Errorf("error = %v, want the field DelayLevel", err)
			}
			if sends() != before {
				t.Error("a half was sent")
			}
		})
		t.Run("no function", func(t *testing.T) {
			_, err := b.p.SendInTransaction(t.Context(), message("nil", "a"), nil)
			var f *txmq.FieldError
			if !errors.As(err, &f) || sends() != 0 {
				t.Errorf("error = %v after %d sends, want a field error and none", err, sends())
			}
		})
		t.Run("B08 context is done before", func(t *testing.T) {
			before := sends()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r, err := b.p.SendInTransaction(ctx, message("cancelled", "a"), mustNotRun)
			wantError(t, err, context.Canceled)
			if sends() != before || r.Verdict != txmq.Rollback || r.Attempt != "" {
				t.Errorf("receipt = %+v after %d sends, want rollback after none", r, sends()-before)
			}
			b.want(t, "cancelled", none, none)
		})
		t.Run("B08 context is done between half and COMMIT", func(t *testing.T) {
			for _, at := range []string{"half", "function"} {
				ctx, cancel := context.WithCancel(t.Context())
				m := message("cancelled at "+at, "a")
				if at == "half" {
					b.broker.fail(faults{before: cancel})
				}
				r, err := b.p.SendInTransaction(ctx, m, func(tx *gorm.DB) error {
					err := apply(m)(tx)
					cancel()
					return err
				})
				cancel()
				wantError(t, err, context.Canceled)
				wantReceipt(t, r, txmq.Rollback, true)
				b.want(t, m.EventID, none, none)
			}
		})
		t.Run("B12 handle of a running transaction is no store", func(t *testing.T) {
			_ = b.db.Transaction(func(tx *gorm.DB) error {
				if _, err := model.Open(t.Context(), tx, model.Config{}); !errors.Is(err, txmq.ErrInTransaction) {
					t.Errorf("Open = %v, want %v", err, txmq.ErrInTransaction)
				}
				return nil
			})
		})
		t.Run("B12 send inside a local function is refused", func(t *testing.T) {
			_, err := b.p.SendInTransaction(t.Context(), message("outer", "a"), func(tx *gorm.DB) error {
				_, err := b.p.SendInTransaction(tx.Statement.Context, message("inner", "a"), mustNotRun)
				wantError(t, err, txmq.ErrInTransaction)
				return errBusiness
			})
			wantError(t, err, errBusiness)
			b.want(t, "inner", none, none)
		})
		t.Run("B17 half that is not durable", func(t *testing.T) {
			b.broker.fail(faults{notDurable: true})
			r, err := b.p.SendInTransaction(t.Context(), message("frail", "a"), mustNotRun)
			wantError(t, err, txmq.ErrHalfNotDurable)
			wantReceipt(t, r, txmq.Rollback, true)
			b.want(t, "frail", none, none)
		})
		t.Run("half that was stored though its answer was lost", func(t *testing.T) {
			b.broker.fail(faults{lostAnswer: true})
			r, err := b.p.SendInTransaction(t.Context(), message("ambiguous", "a"), mustNotRun)
			wantError(t, err, txmq.ErrBrokerUnreachable)
			wantReceipt(t, r, txmq.Rollback, false)
			b.settle(t)
			b.want(t, "ambiguous", none, none)
		})
		t.Run("broker that refuses", func(t *testing.T) {
			b.broker.fail(faults{refuse: txmq.ErrRefused})
			_, err := b.p.SendInTransaction(t.Context(), message("refused", "a"), mustNotRun)
			wantError(t, err, txmq.ErrRefused)
		})
		t.Run("after Close", func(t *testing.T) {
			must(t, b.p.Close(t.Context()))
			_, err := b.p.SendInTransaction(t.Context(), message("late", "a"), mustNotRun)
			wantError(t, err, txmq.ErrClosed)
		})
	})
}

// settle checks back until nothing is open, as the broker does with time.
func (b *bundle) settle(tb reporter) {
	tb.Helper()
	for range 15 {
		if len(b.broker.open()) == 0 {
			return
		}
		b.clock.Add(31 * time.Second)
		b.broker.check(tb.Context())
	}
	tb.Errorf("%d halves are still open after 15 checks", len(b.broker.open()))
}
