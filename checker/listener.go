package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/localtx"
	"github.com/txmq/txmq/internal/rocketmq"
)

// Listener is for who keeps the client's own rocketmq.NewTransactionProducer: it
// runs the local transactions and answers the check-backs, by the same log as a
// producer of txmq. Each message has to be stamped before it is sent. Safe for
// concurrent use.
//
// Stop in this order: no more sends, Close, the client's Shutdown, the database.
type Listener struct {
	check *Checker
	fn    func(tx *gorm.DB, m *primitive.Message) error
	gate  gate // of local transactions

	settleLimit time.Duration
}

var _ primitive.TransactionListener = (*Listener)(nil)

// NewListener checks the configuration, all bad fields at once, each a
// *txmq.FieldError, and starts nothing. fn is the local transaction of m: it
// works on tx alone, does not end it and does not keep it. A nil error commits.
// cfg.Observe also receives txmq.HalfSent and txmq.SendEnded, whose error the
// client has no way to hand to its caller.
func NewListener(cfg Config, fn func(tx *gorm.DB, m *primitive.Message) error) (*Listener, error) {
	check, err := New(cfg)
	if fn == nil {
		err = errors.Join(err, &txmq.FieldError{Field: "checker.NewListener fn", Want: "a function"})
	}
	if err != nil {
		return nil, err
	}
	return &Listener{check: check, fn: fn, settleLimit: localtx.SettleLimit}, nil
}

// ExecuteLocalTransaction is called by the client once the half is stored, on
// the goroutine of its caller. It runs fn in a transaction of its own, whose
// first statement is the row of the transaction log.
//
// CommitMessageState: committed. RollbackMessageState: nothing was committed by
// this call, or ever will be; fn did not run where the event had committed
// before, the attempt was fenced, the message is not stamped for this database,
// or the Listener is closed. UnkonwnState: COMMIT was not answered and the
// database can't be asked; the check-back settles it, or Resolve.
//
// A panic of fn is logged with its stack, rolled back, and not raised again: the
// client's answer to the broker is what this returns, and a panic would leave
// the half without one (Q07).
func (l *Listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if m == nil {
		return rocketmq.ClientState(txmq.Unknown)
	}
	ctx := context.Background() // the client has none for us (Q12)
	e := &execution{
		l: l, m: m, half: readProperties(m, m.Topic, l.check.cfg.Group), began: time.Now(),
		known: txmq.Rollback, err: localtx.ErrNotReturned,
	}
	defer func() { e.ended(ctx) }()
	e.known, e.err = e.run(ctx)
	told := e.known
	if told == txmq.Commit && fault.Point(fault.SendAfterCommit) != nil {
		told = txmq.Unknown // an end-transaction that is lost
	}
	return rocketmq.ClientState(told)
}

// CheckLocalTransaction answers a check-back as Checker.Check does, in
// Config.Timeout and without a panic: the client has one goroutine for all
// checks, and it dies of a panic (Q03).
func (l *Listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return rocketmq.ClientState(l.check.Check(context.Background(), m))
}

// Close rolls back what comes from now on, answers checks Unknown, and waits for
// local transactions and checks under way, up to ctx; its error says that some
// still run, and use the database. It may be called more than once.
func (l *Listener) Close(ctx context.Context) error {
	err := l.gate.close(ctx)
	if err != nil {
		err = &txmq.OpError{Op: "close listener", Err: err}
	}
	return errors.Join(err, l.check.Close(ctx))
}

// execution is one call of ExecuteLocalTransaction.
type execution struct {
	l     *Listener
	m     *primitive.Message
	half  half
	began time.Time

	known   txmq.Verdict
	err     error // why it did not commit, or why that is not known
	refused bool  // for what the message lacks
}

func (e *execution) run(ctx context.Context) (txmq.Verdict, error) {
	if err := e.l.gate.enter(0); err != nil {
		return txmq.Rollback, err
	}
	defer e.l.gate.leave()
	cfg, a := e.l.check.cfg, e.half.attempt
	cfg.Observe.Emit(ctx, txmq.HalfSent{Topic: a.Topic, EventID: a.EventID, Attempt: a.ID, MsgID: e.m.TransactionId})
	if err := e.unanswerable(); err != nil {
		e.refused = true
		return txmq.Rollback, err
	}
	var committing bool
	v, _, err := localtx.Call{
		Store: cfg.Store, Attempt: a, Fn: func(tx *gorm.DB) error { return e.l.fn(tx, e.m) },
		Resolve: Resolve, Settle: e.l.settleLimit, Committing: &committing, Logger: cfg.Logger,
	}.Run(ctx)
	return v, err
}

// unanswerable says why a check-back of this half would not find its row. With
// the end-transaction lost, what is committed here would never be seen, so it
// must not be committed.
func (e *execution) unanswerable() error {
	_, err := e.half.strange(e.l.check.cfg.Store.DatabaseID())
	switch {
	case err == nil:
		return nil
	case e.half.database == "":
		err = &txmq.FieldError{Field: "property " + txmq.PropertyDatabaseID, Want: "the database ID"}
	}
	return fmt.Errorf("message is not stamped for this database (checker.Listener.Stamp before each send): %w", err)
}

// ended also runs when fn ends the goroutine.
func (e *execution) ended(ctx context.Context) {
	cfg, a := e.l.check.cfg, e.half.attempt
	err := e.err
	var known *txmq.OpError
	if err != nil && !errors.As(err, &known) {
		err = &txmq.OpError{Op: "execute", EventID: a.EventID, Err: err}
	}
	cfg.Observe.Emit(ctx, txmq.SendEnded{
		Topic: a.Topic, EventID: a.EventID, Attempt: a.ID, Verdict: e.known, Took: time.Since(e.began), Err: err,
	})
	level, text := slog.LevelDebug, "local transaction is committed"
	switch {
	case e.known == txmq.Unknown:
		level, text = slog.LevelError, "outcome of the local transaction is unknown, a check-back settles it"
	case e.refused:
		level, text = slog.LevelError, "half message is refused and rolled back, its local transaction did not run"
	case errors.Is(e.err, txmq.ErrDuplicateEvent):
		level, text = slog.LevelInfo, "half message is rolled back, its event has committed before"
	case e.err != nil:
		level, text = slog.LevelWarn, "local transaction and half message are rolled back"
	}
	attrs := []slog.Attr{
		slog.String("event_id", a.EventID), slog.String("attempt", a.ID), slog.String("topic", a.Topic),
		slog.String("msg_id", e.m.TransactionId),
	}
	if e.err != nil {
		attrs = append(attrs, slog.Any("error", e.err))
	}
	cfg.Logger.LogAttrs(ctx, level, text, attrs...) //nolint:sloglint // one of the constants above
}
