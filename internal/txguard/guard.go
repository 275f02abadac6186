// Package txguard stands between a user's function and the transaction that
// txmq pairs with a message or a delivery. The function may do everything in it
// but end it, and a transaction that the server has broken can't be committed,
// whether or not the function looked at the error.
//
// Invariants:
//   - After the first breaking error no statement reaches the server.
//   - Finish returns nil only when nothing broke and nobody misused it.
//   - No transaction statement or DDL of the function reaches the server, but
//     for savepoints.
package txguard

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// Rules are what a guard has to know of its database.
type Rules struct {
	// Breaks says whether err means that the server has, or may have, undone
	// work of the transaction.
	Breaks func(err error) bool
	// Savepoints: an error may arrive in the middle of a result, where only a
	// savepoint that is gone shows it. True for MySQL and MariaDB.
	Savepoints bool
	// Backslash: it escapes in strings, and "--" begins a comment only before a
	// space. True for MySQL and MariaDB.
	Backslash bool
}

const savepoint = "txmq_guard"

// Pool is the gorm.ConnPool that a user's function works on. It implements
// gorm.Tx, so that gorm and its plugins see a transaction: without StmtContext
// a Session{PrepareStmt: true} would silently leave it. Safe for concurrent use
// as far as *sql.Tx is.
type Pool struct {
	inner gorm.Tx // what gorm began: *sql.Tx, or *gorm.PreparedStmtTX around it
	raw   gorm.Tx // under a PreparedStmtTX: SAVEPOINT can't be prepared on MySQL
	rules Rules

	mu     sync.Mutex
	err    error // the first thing that went wrong; never cleared
	done   bool  // Finish was called
	busy   int   // statements under way
	marked bool  // the savepoint is set and has to be released
	sticky bool  // a prepared statement is out: its errors pass by, so the savepoint always stands
	rows   []*sql.Rows
}

// Wrap puts a guard around the transaction that gorm began.
func Wrap(inner gorm.Tx, rules Rules) *Pool {
	p := &Pool{inner: inner, raw: inner, rules: rules}
	if prepared, ok := inner.(*gorm.PreparedStmtTX); ok {
		p.raw = prepared.Tx
	}
	return p
}

// Raw is the transaction below the guard, for txmq's own statements.
func (p *Pool) Raw() gorm.Tx { return p.raw }

// Err is the first thing that went wrong, nil while all is well.
func (p *Pool) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Finish closes the guard to the function and says whether its transaction may
// be committed. The caller then commits or rolls back Raw.
func (p *Pool) Finish(ctx context.Context) error {
	p.closeRows()
	if err := p.Shut(); err != nil {
		return err
	}
	return p.release(ctx)
}

// closeRows ends the results that the function left open, which would be in the
// way of the next statement, and hears what errors the others ended with.
func (p *Pool) closeRows() {
	p.mu.Lock()
	rows := p.rows
	p.rows = nil
	p.mu.Unlock()
	for _, r := range rows {
		p.Note(r.Err())
		_ = r.Close()
	}
}

// Shut refuses what the function may still try, and says what is wrong already.
func (p *Pool) Shut() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.busy > 0 && p.err == nil {
		p.err = fmt.Errorf("%w: a statement was still running when the function returned", txmq.ErrTxMisused)
	}
	return p.err
}

// Note records err when it breaks the transaction. The gorm callbacks hand it
// every error of a statement, those too that a prepared statement or the middle
// of a result brought.
func (p *Pool) Note(err error) {
	if err == nil || !p.rules.Breaks(err) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && !p.done {
		p.err = fmt.Errorf("%w: %w", txmq.ErrTxBroken, err)
	}
}

// Commit refuses: the transaction is not the function's to end.
func (p *Pool) Commit() error { return p.misuse("COMMIT") }

// Rollback refuses too; a function rolls back by returning an error.
func (p *Pool) Rollback() error { return p.misuse("ROLLBACK") }

// PrepareContext prepares in the transaction.
func (p *Pool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	p.sticky = true
	p.mu.Unlock()
	if err := p.enter(ctx, query, true); err != nil {
		return nil, err
	}
	defer p.leave()
	stmt, err := p.inner.PrepareContext(ctx, query) //nolint:sqlclosecheck // the caller closes it
	p.Note(err)
	return stmt, err
}

// ExecContext runs a statement.
func (p *Pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.enter(ctx, query, false); err != nil {
		return nil, err
	}
	defer p.leave()
	if !isSavepoint(query, p.rules.Backslash) {
		res, err := p.inner.ExecContext(ctx, query, args...)
		p.Note(err)
		return res, err
	}
	res, err := p.raw.ExecContext(ctx, query, args...)
	p.Note(err)
	if err == nil && p.isSticky() {
		err = p.mark(ctx) // behind the function's own, which would go with it
	}
	return res, err
}

// QueryContext runs a query.
func (p *Pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.enter(ctx, query, mayBreakMidway(query, p.rules.Backslash)); err != nil {
		return nil, err
	}
	defer p.leave()
	rows, err := p.inner.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // the caller closes it
	p.Note(err)
	if rows != nil {
		p.mu.Lock()
		p.rows = append(p.rows, rows)
		p.mu.Unlock()
	}
	return rows, err
}

// QueryRowContext runs a query of one row. A refusal shows as a context error
// in the row, since database/sql offers no other way; Finish knows the reason.
func (p *Pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := p.enter(ctx, query, mayBreakMidway(query, p.rules.Backslash)); err != nil {
		return p.raw.QueryRowContext(cancelled(ctx, err), query, args...)
	}
	defer p.leave()
	row := p.inner.QueryRowContext(ctx, query, args...)
	p.Note(row.Err())
	return row
}

// StmtContext is called by gorm for a statement that was prepared elsewhere.
// Its text and its errors pass by; the savepoint and the callbacks see both.
func (p *Pool) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	if err := p.enter(ctx, "", true); err != nil {
		return p.raw.StmtContext(cancelled(ctx, err), stmt)
	}
	defer p.leave()
	return p.inner.StmtContext(ctx, stmt)
}

// Check refuses what may not run: any statement after something went wrong, and
// statements that would end the transaction.
func (p *Pool) Check(query string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.check(query)
}

func (p *Pool) check(query string) error {
	switch {
	case p.done:
		if p.err == nil {
			p.err = fmt.Errorf("%w: used after the function returned", txmq.ErrTxMisused)
		}
		return p.err
	case p.err != nil:
		return p.err
	}
	if kind := p.rules.forbidden(query); kind != "" {
		p.err = fmt.Errorf("%w: %s is refused inside it", txmq.ErrTxMisused, kind)
		return p.err
	}
	return nil
}

// enter checks, settles the savepoint of the query before, and sets one where
// this query's result could hide a deadlock.
func (p *Pool) enter(ctx context.Context, query string, mark bool) error {
	p.mu.Lock()
	if err := p.check(query); err != nil {
		p.mu.Unlock()
		return err
	}
	p.busy++
	mark = mark || p.sticky && !isSavepoint(query, p.rules.Backslash)
	p.mu.Unlock()

	err := p.release(ctx)
	if err == nil && mark {
		err = p.mark(ctx)
	}
	if err != nil {
		p.leave()
	}
	return err
}

// mark sets the savepoint whose loss tells of a rollback that nobody saw.
func (p *Pool) mark(ctx context.Context) error {
	if !p.rules.Savepoints {
		return nil
	}
	_, err := p.raw.ExecContext(ctx, "SAVEPOINT "+savepoint)
	p.Note(err)
	p.mu.Lock()
	p.marked = err == nil
	p.mu.Unlock()
	return err
}

func (p *Pool) isSticky() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sticky
}

func (p *Pool) leave() {
	p.mu.Lock()
	p.busy--
	p.mu.Unlock()
}

// release takes the savepoint away. Where the server does not know it any more,
// it has rolled the whole transaction back.
func (p *Pool) release(ctx context.Context) error {
	p.mu.Lock()
	marked := p.marked
	p.marked = false
	p.mu.Unlock()
	if !marked {
		return nil
	}
	_, err := p.raw.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint)
	if err == nil {
		return nil
	}
	broken := fmt.Errorf("%w: rolled back by the server in the middle of a result: %w", txmq.ErrTxBroken, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = broken
	}
	return p.err
}

func (p *Pool) misuse(kind string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s is refused inside it", txmq.ErrTxMisused, kind)
	}
	return p.err
}

// cancelled makes database/sql return before it sends anything.
func cancelled(ctx context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	return ctx
}
