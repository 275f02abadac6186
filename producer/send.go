package producer

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/localtx"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// SendInTransaction stores m as a half message, runs fn in a transaction of its
// own on the store's database, and has the broker show m if that committed.
//
// fn works on tx alone, does not end it, and does not keep it. It runs at most
// once per call, not at all after an error of the half message, and a nil error
// from it commits. With the caller's context done nothing is sent; done later,
// the transaction is rolled back, until COMMIT is sent.
//
// nil means that the transaction has committed: m is visible, or will be after
// a check-back, even if this process dies now. Every error means that nothing
// was committed by this call, but for one that Is txmq.ErrOutcomeUnknown, which
// Resolve settles later. An error that Is txmq.ErrDuplicateEvent: an earlier
// call of this event on this topic has committed; fn did not run.
// txmq.ErrFenced: fn did not run, because this call took too long to begin;
// call again. Others are txmq.ErrHalfNotDurable, txmq.ErrBrokerUnreachable,
// txmq.ErrRefused, txmq.ErrTxBroken, txmq.ErrTxMisused, a *txmq.FieldError, the
// database's, and fn's own. A panic of fn goes on after the rollback. Errors
// come wrapped in a *txmq.OpError.
//
// Do not call it inside a transaction of your own on the same database: that
// one can still be rolled back after m is visible. It is refused with
// txmq.ErrInTransaction where it shows, which is inside fn with tx's context.
func (p *Producer) SendInTransaction(ctx context.Context, m txmq.Message, fn func(tx *gorm.DB) error) (Receipt, error) {
	s := &send{p: p, m: m, fn: fn, began: p.now(), known: txmq.Rollback}
	defer func() { s.ended(ctx) }()
	if s.err = s.prepare(ctx); s.err != nil {
		return s.receipt(), s.wrapped()
	}
	res, err := p.halves.SendHalf(ctx, s.m, s.properties(), func(h rocketmq.Half) txmq.Verdict { return s.local(ctx, h) })
	s.sent(ctx, res, err)
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.receipt(), s.wrapped()
}

// send is one call of SendInTransaction.
type send struct {
	p       *Producer
	m       txmq.Message // with its event ID
	fn      func(tx *gorm.DB) error
	attempt model.Attempt
	began   time.Time

	msgID      string
	ran        bool         // a half is stored, and local was called
	committing bool         // COMMIT may have been sent
	known      txmq.Verdict // what the local transaction came to
	told       txmq.Verdict // what the broker is to be told
	handed     bool         // ... and was
	err        error        // why it did not commit, or why that is not known
	panicked   any          // by fn; raised again once the broker is told
}

// prepare refuses what can be refused without I/O, and names the call.
func (s *send) prepare(ctx context.Context) error {
	if err := errors.Join(s.checkCall(ctx), rocketmq.CheckMessage(s.m, true)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.m.EventID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		s.m.EventID = id.String()
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	s.attempt = model.Attempt{ID: id.String(), Topic: s.m.Topic, EventID: s.m.EventID, Group: s.p.cfg.Group}
	return fault.Point(fault.SendBeforeHalf)
}

func (s *send) checkCall(ctx context.Context) error {
	var errs []error
	if s.fn == nil {
		errs = append(errs, &txmq.FieldError{Field: "producer.SendInTransaction fn", Want: "a function"})
	}
	if localtx.Inside(ctx, s.p.cfg.Store) {
		errs = append(errs, txmq.ErrInTransaction, &txmq.FieldError{
			Field: "producer.SendInTransaction ctx", Value: "a local transaction's",
			Want: "the caller's own: send after the outer call has returned",
		})
	}
	return errors.Join(errs...)
}

// properties are those that m itself does not give.
func (s *send) properties() map[string]string {
	return map[string]string{
		txmq.PropertyAttempt:    s.attempt.ID,
		txmq.PropertyDatabaseID: s.p.cfg.Store.DatabaseID(),
		txmq.PropertyBorn:       strconv.FormatInt(s.began.UnixMilli(), 10),
	}
}

// sent notes what the broker's side says. Once local has run, its word counts.
func (s *send) sent(ctx context.Context, res rocketmq.HalfResult, err error) {
	if !s.ran {
		s.msgID, s.told, s.err = res.Half.MsgID, res.Verdict, err
		if err == nil {
			s.err = errors.New("half message was neither stored nor refused")
		}
	}
	s.handed = res.Ended && s.told != txmq.Unknown
	if s.ran && s.known != txmq.Unknown && !s.handed {
		s.endLost(ctx, err)
	}
}

func (s *send) receipt() Receipt {
	return Receipt{EventID: s.m.EventID, Attempt: s.attempt.ID, MsgID: s.msgID, Verdict: s.known, Ended: s.handed}
}

func (s *send) wrapped() error {
	if s.err == nil {
		return nil
	}
	err := s.err
	if inner, ok := err.(*txmq.OpError); ok && inner.EventID == s.m.EventID { //nolint:errorlint // only its own wrapping comes off
		err = inner.Err
	}
	return &txmq.OpError{Op: "send", EventID: s.m.EventID, Err: err}
}
