package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/txguard"
)

// Tx is a transaction that txmq began and alone ends. The user's function gets
// DB(), behind the guard; txmq's own statements run below it. Not safe for
// concurrent use.
type Tx struct {
	s     *Store
	db    *gorm.DB
	guard *txguard.Pool
	ended bool
}

// Begin starts a transaction at READ COMMITTED (SQLite: its own level). The
// context's end rolls it back.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	return s.begin(ctx, s.d.isolation)
}

func (s *Store) begin(ctx context.Context, level sql.IsolationLevel) (*Tx, error) {
	db := s.db.WithContext(ctx).Begin(&sql.TxOptions{Isolation: level})
	if db.Error != nil {
		return nil, wrapOp("begin", "", db.Error)
	}
	inner, ok := db.Statement.ConnPool.(gorm.Tx)
	if !ok {
		return nil, wrapOp("begin", "", fmt.Errorf("connection pool %T gives no gorm.Tx", db.Statement.ConnPool))
	}
	guard := txguard.Wrap(inner, txguard.Rules{Breaks: s.d.breaks, Savepoints: s.d.savepoints, Backslash: s.d.backslash})
	db.Statement.ConnPool = guard
	return &Tx{s: s, db: db, guard: guard}, nil
}

// DB is the handle for the user's function, with the context of Begin.
func (t *Tx) DB() *gorm.DB { return t.db.Session(&gorm.Session{NewDB: true}) }

// Err is what broke the transaction so far, nil while all is well.
func (t *Tx) Err() error { return t.guard.Err() }

// Close ends the user's part: what runs on DB() from here on is refused. It
// says why the transaction may not be committed, if so.
func (t *Tx) Close(ctx context.Context) error { return t.guard.Finish(ctx) }

// Commit closes and commits. nil: committed. An error that Is
// txmq.ErrOutcomeUnknown: COMMIT was sent, and its answer did not come or was an
// error (a server that turns read-only refuses COMMIT and leaves the
// transaction open, so that is no rollback): look before saying anything. Any
// other error: rolled back.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.Close(ctx); err != nil {
		t.Rollback()
		return err
	}
	t.ended = true
	err := t.guard.Raw().Commit()
	switch {
	case err == nil:
		return nil
	case notSent(err):
		return fmt.Errorf("%w: %w", txmq.ErrTxBroken, err)
	default:
		return fmt.Errorf("%w: %w", txmq.ErrOutcomeUnknown, err)
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
	_ = t.guard.Raw().Rollback() // its error changes nothing: an open transaction dies with its connection
}

func (t *Tx) conn() conn { return t.guard.Raw() }
