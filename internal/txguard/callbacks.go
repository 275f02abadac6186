package txguard

import (
	"errors"

	"gorm.io/gorm"
)

const (
	checkName = "txmq:guard_check"
	noteName  = "txmq:guard_note"
)

// Register adds two callbacks to each of db's processors. They do nothing
// outside a guarded transaction; inside, they see the statements that
// Session{PrepareStmt: true} runs around the guard, and errors that come in the
// middle of a result. Calling it again on the same db changes nothing.
func Register(db *gorm.DB) error {
	cb := db.Callback()
	if cb.Raw().Get(noteName) != nil {
		return nil
	}
	after := []func(string, func(*gorm.DB)) error{
		cb.Create().After("*").Register, cb.Query().After("*").Register,
		cb.Update().After("*").Register, cb.Delete().After("*").Register,
		cb.Row().After("*").Register, cb.Raw().After("*").Register,
	}
	err := errors.Join(cb.Raw().Before("*").Register(checkName, check), cb.Row().Before("*").Register(checkName, checkRow))
	if err != nil {
		return err
	}
	for _, register := range after {
		if err := register(noteName, note); err != nil {
			return err
		}
	}
	return nil
}

// check is for what a prepared statement runs around the guard; else the guard
// itself is asked, once.
func check(db *gorm.DB) {
	if p := around(db); p != nil {
		if err := p.Check(db.Statement.SQL.String()); err != nil {
			_ = db.AddError(err)
		}
	}
}

// checkRow is check for Rows. For Row, gorm has no place for an error: it would
// give a nil *sql.Row, whose Scan panics. The guard itself gives one that says
// that it was refused.
func checkRow(db *gorm.DB) {
	if rows, ok := db.Get("rows"); ok && rows == true {
		check(db)
		return
	}
	if p := around(db); p != nil && p.Check(db.Statement.SQL.String()) != nil {
		db.Statement.ConnPool = p
	}
}

func note(db *gorm.DB) {
	p := of(db)
	if p == nil || db.Error == nil {
		return
	}
	p.Note(db.Error)
	if err := p.Err(); err != nil {
		db.Error = err // say why, where a refusal showed as a context error
	}
}

func of(db *gorm.DB) *Pool {
	if p, ok := db.Statement.ConnPool.(*Pool); ok {
		return p
	}
	return around(db)
}

// around is the guard that prepared statements go around.
func around(db *gorm.DB) *Pool {
	if prepared, ok := db.Statement.ConnPool.(*gorm.PreparedStmtTX); ok {
		p, _ := prepared.Tx.(*Pool)
		return p
	}
	return nil
}
