package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/txguard"
)

// commitLimit is how long COMMIT may stay without an answer before its outcome
// counts as unknown. Drivers give COMMIT no context of its own.
const commitLimit = 10 * time.Second

// Tx is a transaction that txmq began and alone ends. The user's function gets
// DB(), behind the guard; txmq's own statements run below it. Not safe for
// concurrent use.
type Tx struct {
	s       *Store
	ctx     context.Context // Begin's, for DB
	session *sql.Conn       // the transaction's own, until it has ended
	guard   *txguard.Pool
	ended   bool
}

// Begin starts a transaction at READ COMMITTED (SQLite: its own level). The
// context's end rolls it back. Where Open found that the pool's sessions have
// that level from the start, it is not said for each transaction, which saves a
// round trip; one whose level somebody has changed since keeps its own.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	if s.d.committed {
		return s.begin(ctx, sql.LevelDefault)
	}
	return s.begin(ctx, s.d.isolation)
}

// BeginReadCommitted is Begin that takes no session's word for its level: for
// what would be wrong at another.
func (s *Store) BeginReadCommitted(ctx context.Context) (*Tx, error) {
	return s.begin(ctx, s.d.isolation)
}

func (s *Store) begin(ctx context.Context, level sql.IsolationLevel) (*Tx, error) {
	session, err := s.pool.Conn(ctx)
	if err != nil {
		return nil, wrapOp("begin", "", err)
	}
	inner, err := session.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return nil, wrapOp("begin", "", errors.Join(err, session.Close()))
	}
	t := &Tx{s: s, ctx: ctx, session: session}
	t.guard = txguard.Wrap(t.asGorm(inner), txguard.Rules{
		Breaks: s.d.breaks, Savepoints: s.d.savepoints, Backslash: s.d.backslash,
	})
	return t, nil
}

// asGorm is the transaction as gorm itself would have begun it: with its
// prepared statements, where the service asked for them.
func (t *Tx) asGorm(inner *sql.Tx) gorm.Tx {
	if prepared, ok := t.s.db.ConnPool.(*gorm.PreparedStmtDB); ok {
		return &gorm.PreparedStmtTX{Tx: inner, PreparedStmtDB: prepared}
	}
	return inner
}

// DB is the handle for the user's function, with the context of Begin.
func (t *Tx) DB() *gorm.DB { return t.DBWithContext(t.ctx) }

// DBWithContext is DB with another context, such as one that ends before Begin's.
func (t *Tx) DBWithContext(ctx context.Context) *gorm.DB {
	db := t.s.db.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a Statement of its own
	db.Statement.ConnPool = t.guard
	return db
}

// Err is what broke the transaction so far, nil while all is well.
func (t *Tx) Err() error { return t.guard.Err() }

// Close ends the user's part: what runs on DB() from here on is refused. It
// says why the transaction may not be committed, if so.
func (t *Tx) Close(ctx context.Context) error { return t.guard.Finish(ctx) }

// Commit closes and commits. nil: committed. An error that Is
// txmq.ErrOutcomeUnknown: COMMIT was sent, and its answer did not come within
// 10 s, or was an error; the connection is closed then, so that the server ends
// what may still be open (SQLite, and a server that turns read-only, refuse
// COMMIT and leave it so), and the row has to be looked at before anything is
// said. Any other error: rolled back.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.Close(ctx); err != nil {
		t.Rollback()
		return err
	}
	t.ended = true
	err := t.commit()
	switch {
	case err == nil:
		return nil
	case notSent(err):
		return fmt.Errorf("%w: %w", txmq.ErrTxBroken, err)
	default:
		return fmt.Errorf("%w: %w", txmq.ErrOutcomeUnknown, err)
	}
}

var errNoAnswer = fmt.Errorf("no answer to COMMIT within %v", commitLimit)

// answer is what one COMMIT is waited with. Each is used for many: they are most
// of what a commit would allocate.
type answer struct {
	done  chan error
	limit *time.Timer
}

func (s *Store) answer() *answer {
	if a, ok := s.answers.Get().(*answer); ok {
		a.limit.Reset(commitLimit)
		return a
	}
	return &answer{done: make(chan error, 1), limit: time.NewTimer(commitLimit)}
}

// commit waits for the answer, but not for ever. Without one the goroutine goes
// on until the connection's own time-outs end it, and closes the connection.
func (t *Tx) commit() error {
	a := t.s.answer()
	go func() {
		err := t.guard.Raw().Commit()
		t.release(err)
		a.done <- err
	}()
	select {
	case err := <-a.done:
		a.limit.Stop()
		t.s.answers.Put(a)
		return err
	case <-a.limit.C:
		return errNoAnswer // the goroutine still has a
	}
}

// notSent tells that database/sql had rolled back, since Begin's context was
// over, and so sent no COMMIT. It then gives the context's error itself; one
// that is wrapped comes from a driver, which may have sent it.
func notSent(err error) bool {
	return errors.Is(err, sql.ErrTxDone) ||
		err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // a wrapped one is another
}

// Rollback undoes everything. After Commit or Rollback it does nothing.
func (t *Tx) Rollback() {
	if t.ended {
		return
	}
	t.ended = true
	_ = t.guard.Shut()
	t.release(t.guard.Raw().Rollback())
}

// release gives the connection back, or closes it where what is open on it is
// not known to have ended. ErrTxDone: the context's end has rolled back.
func (t *Tx) release(err error) {
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		// Raw closes a connection whose function says that it is bad.
		_ = t.session.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = t.session.Close() // ErrConnDone after a closed one
}

func (t *Tx) conn() conn { return t.guard.Raw() }
