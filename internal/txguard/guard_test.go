package txguard

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

var errBreaks, errOwn = errors.New("deadlock"), errors.New("duplicate key")

// script is a transaction that notes what reaches it, and fails as told.
type script struct {
	gorm.Tx
	log  []string
	errs map[string]error
	hook func()
}

func (s *script) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	s.log = append(s.log, query)
	if s.hook != nil {
		s.hook()
	}
	return nil, s.errs[query]
}

func (s *script) QueryContext(_ context.Context, query string, _ ...any) (*sql.Rows, error) {
	s.log = append(s.log, query)
	return nil, s.errs[query]
}

func (s *script) PrepareContext(_ context.Context, query string) (*sql.Stmt, error) {
	s.log = append(s.log, "prepare "+query)
	return nil, s.errs[query]
}

func (s *script) StmtContext(context.Context, *sql.Stmt) *sql.Stmt {
	s.log = append(s.log, "stmt")
	return nil
}

func guarded(savepoints bool) (*Pool, *script) {
	s := &script{errs: map[string]error{}}
	return Wrap(s, Rules{Breaks: func(err error) bool { return errors.Is(err, errBreaks) }, Savepoints: savepoints, Backslash: true}), s
}

func (s *script) wants(t *testing.T, log ...string) {
	t.Helper()
	if diff := cmp.Diff(log, s.log); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func isErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s = %v, want %v", what, err, target)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	const locking, plain, work = "SELECT a FROM t FOR UPDATE", "SELECT a FROM t", "UPDATE t SET a = 1"
	query := func(t *testing.T, p *Pool, q string) error {
		rows, err := p.QueryContext(t.Context(), q)
		if rows != nil {
			err = errors.Join(err, rows.Err(), rows.Close())
		}
		return err
	}
	exec := func(t *testing.T, p *Pool, q string) error {
		_, err := p.ExecContext(t.Context(), q)
		return err
	}
	t.Run("a savepoint stands around a locking query only, until the next statement", func(t *testing.T) {
		p, s := guarded(true)
		isErr(t, "query", errors.Join(query(t, p, plain), query(t, p, locking), exec(t, p, work), query(t, p, locking)), nil)
		isErr(t, "Finish", p.Finish(t.Context()), nil)
		s.wants(t, plain, "SAVEPOINT txmq_guard", locking, "RELEASE SAVEPOINT txmq_guard", work,
			"SAVEPOINT txmq_guard", locking, "RELEASE SAVEPOINT txmq_guard")
	})
	t.Run("no savepoint where the database needs none", func(t *testing.T) {
		p, s := guarded(false)
		isErr(t, "query", errors.Join(query(t, p, locking), p.Finish(t.Context())), nil)
		s.wants(t, locking)
	})
	t.Run("a savepoint stands around what was prepared elsewhere", func(t *testing.T) {
		p, s := guarded(true)
		_ = p.StmtContext(t.Context(), nil)
		isErr(t, "Finish", p.Finish(t.Context()), nil)
		s.wants(t, "SAVEPOINT txmq_guard", "stmt", "RELEASE SAVEPOINT txmq_guard")
	})
	t.Run("B35 a savepoint that is gone breaks the transaction", func(t *testing.T) {
		p, s := guarded(true)
		isErr(t, "query", query(t, p, locking), nil)
		s.errs["RELEASE SAVEPOINT txmq_guard"] = errors.New("1305")
		isErr(t, "the next statement", exec(t, p, work), txmq.ErrTxBroken)
		isErr(t, "Finish", p.Finish(t.Context()), txmq.ErrTxBroken)
		s.wants(t, "SAVEPOINT txmq_guard", locking, "RELEASE SAVEPOINT txmq_guard")
	})
	t.Run("B35 nor does Finish forget it when nothing follows", func(t *testing.T) {
		p, s := guarded(true)
		isErr(t, "query", query(t, p, locking), nil)
		s.errs["RELEASE SAVEPOINT txmq_guard"] = errors.New("1305")
		isErr(t, "Finish", p.Finish(t.Context()), txmq.ErrTxBroken)
	})
	t.Run("B35 a savepoint that can't be set stops the query", func(t *testing.T) {
		p, s := guarded(true)
		s.errs["SAVEPOINT txmq_guard"] = errBreaks
		isErr(t, "query", query(t, p, locking), errBreaks)
		isErr(t, "Finish", p.Finish(t.Context()), txmq.ErrTxBroken)
		s.wants(t, "SAVEPOINT txmq_guard")
	})
	t.Run("after the first breaking error no statement is sent", func(t *testing.T) {
		p, s := guarded(true)
		s.errs[work] = errBreaks
		isErr(t, "exec", exec(t, p, work), errBreaks)
		sent := slices.Clone(s.log)
		isErr(t, "exec", exec(t, p, "DELETE FROM t"), txmq.ErrTxBroken)
		isErr(t, "query", query(t, p, plain), txmq.ErrTxBroken)
		isErr(t, "query", query(t, p, locking), txmq.ErrTxBroken)
		_, err := p.PrepareContext(t.Context(), plain)
		isErr(t, "prepare", err, txmq.ErrTxBroken)
		isErr(t, "savepoint", exec(t, p, "ROLLBACK TO SAVEPOINT a"), txmq.ErrTxBroken)
		isErr(t, "Check", p.Check(plain), txmq.ErrTxBroken)
		isErr(t, "Finish", p.Finish(t.Context()), errBreaks)
		s.wants(t, sent...)
	})
	t.Run("an error of the function's own breaks nothing", func(t *testing.T) {
		p, s := guarded(true)
		s.errs[work] = errOwn
		isErr(t, "exec", exec(t, p, work), errOwn)
		isErr(t, "query", query(t, p, plain), nil)
		p.Note(errOwn)
		p.Note(nil)
		isErr(t, "Finish", p.Finish(t.Context()), nil)
	})
	t.Run("what is refused is not sent, and not forgiven", func(t *testing.T) {
		p, s := guarded(true)
		isErr(t, "exec", exec(t, p, "TRUNCATE t"), txmq.ErrTxMisused)
		isErr(t, "exec", exec(t, p, work), txmq.ErrTxMisused)
		err := p.Finish(t.Context())
		isErr(t, "Finish", err, txmq.ErrTxMisused)
		if !strings.Contains(err.Error(), "TRUNCATE") {
			t.Errorf("Finish = %v, want the kind named", err)
		}
		s.wants(t)
	})
	t.Run("B75 Commit and Rollback are refused, and not forgiven", func(t *testing.T) {
		for kind, end := range map[string]func(*Pool) error{"COMMIT": (*Pool).Commit, "ROLLBACK": (*Pool).Rollback} {
			p, s := guarded(true)
			isErr(t, kind, end(p), txmq.ErrTxMisused)
			if err := p.Finish(t.Context()); !errors.Is(err, txmq.ErrTxMisused) || !strings.Contains(err.Error(), kind) {
				t.Errorf("Finish = %v, want %s named", err, kind)
			}
			s.wants(t)
		}
	})
	t.Run("B75 nothing is sent after Finish, and Err tells of it", func(t *testing.T) {
		p, s := guarded(true)
		isErr(t, "Finish", p.Finish(t.Context()), nil)
		isErr(t, "exec", exec(t, p, work), txmq.ErrTxMisused)
		isErr(t, "query", query(t, p, plain), txmq.ErrTxMisused)
		isErr(t, "Commit", p.Commit(), txmq.ErrTxMisused)
		isErr(t, "Err", p.Err(), txmq.ErrTxMisused)
		isErr(t, "Finish again", p.Finish(t.Context()), txmq.ErrTxMisused)
		s.wants(t)
	})
	t.Run("a statement that still runs when the function returns is misuse", func(t *testing.T) {
		p, s := guarded(true)
		var finish error
		s.hook = func() { finish = p.Finish(t.Context()) }
		isErr(t, "exec", exec(t, p, work), nil)
		isErr(t, "Finish", finish, txmq.ErrTxMisused)
		isErr(t, "Err", p.Err(), txmq.ErrTxMisused)
	})
	t.Run("the first thing that went wrong is the one that is told", func(t *testing.T) {
		p, _ := guarded(true)
		p.Note(errBreaks)
		isErr(t, "Commit", p.Commit(), errBreaks)
		isErr(t, "exec", exec(t, p, "COMMIT"), errBreaks)
		if err := p.Finish(t.Context()); !errors.Is(err, errBreaks) || errors.Is(err, txmq.ErrTxMisused) {
			t.Errorf("Finish = %v, want the deadlock alone", err)
		}
	})
	t.Run("gorm's savepoints go below a prepared transaction", func(t *testing.T) {
		s := &script{errs: map[string]error{}}
		p := Wrap(&gorm.PreparedStmtTX{Tx: s}, Rules{Breaks: func(error) bool { return false }, Savepoints: true})
		isErr(t, "exec", errors.Join(exec(t, p, "SAVEPOINT sp1"), exec(t, p, "ROLLBACK TO SAVEPOINT sp1")), nil)
		s.wants(t, "SAVEPOINT sp1", "ROLLBACK TO SAVEPOINT sp1")
		if p.Raw() != gorm.Tx(s) {
			t.Errorf("Raw = %T, want the transaction below", p.Raw())
		}
	})
}

func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	db, err := gorm.Open(nil, &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Register(db); err != nil {
			t.Error(err)
		}
	}
}
