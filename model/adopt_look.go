package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txmq/txmq"
)

// foreign is a table that somebody else wrote, as it is found.
type foreign struct {
	cfg     AdoptConfig
	name    string // by now: Table, or Kept once it is renamed
	columns []foreignColumn
	indexes map[string]bool     // by name: unique over whole columns
	unique  map[string][]string // the columns of those
	key     string              // first column of the primary key
}

// foreignColumn is a column by its name in lower case, which is how they compare.
type foreignColumn struct {
	name, kind, full   string // event_id, varchar, varchar(64)
	nullable, preset   bool   // preset: it has a default of its own
	charset, collation string // empty where it holds no text
}

func (t *foreign) column(name string) (foreignColumn, bool) {
	i := slices.IndexFunc(t.columns, func(c foreignColumn) bool { return c.name == name })
	if i < 0 {
		return foreignColumn{}, false
	}
	return t.columns[i], true
}

// planAdopt finds the table and looks at it.
func (s *Store) planAdopt(ctx context.Context, c AdoptConfig) (Adoption, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return Adoption{}, err
	}
	if !s.d.adopts {
		return Adoption{}, &txmq.SchemaError{
			Table: c.Table, Problem: "only MySQL and MariaDB have their tables adopted",
			Hint: "rename it, run `txmq migrate up`, and copy its rows by hand; docs/cli.md says what into",
		}
	}
	a := Adoption{Table: c.Table, Kept: c.Table + keptSuffix, Ours: s.Table("msg_consume")}
	a.t = &foreign{cfg: c, name: c.Table}
	if err := s.locate(ctx, &a); err != nil {
		return a, err
	}
	err := s.foreignSession(ctx, c.wait, func(conn *sql.Conn) error { return s.lookAt(ctx, conn, &a) })
	return a, wrapOp("adopt", "", err)
}

// locate refuses what is ours already, and finds out whether an earlier run has
// begun.
func (s *Store) locate(ctx context.Context, a *Adoption) error {
	have, err := s.version(ctx)
	if err != nil {
		return err
	}
	there, err := s.exists(ctx, a.Table)
	if err != nil {
		return err
	}
	if a.Begun, err = s.exists(ctx, a.Kept); err != nil {
		return err
	}
	var done, other string
	if made, lookErr := s.exists(ctx, s.Table("meta")); made && have > 0 {
		done, err = s.meta(ctx, metaAdopted+a.Table)
		if err == nil {
			other, err = s.meta(ctx, metaAdopting)
		}
	} else if lookErr != nil {
		err = lookErr
	}
	if err != nil {
		return err
	}
	refuse := func(problem, hint string) error {
		return &txmq.SchemaError{Table: a.Table, Problem: problem, Hint: hint}
	}
	ours := there && a.Table == a.Ours && s.hasColumns(ctx, "msg_consume", "payload_hash, version, lease_until")
	switch {
	case done != "":
		return refuse("was adopted at "+done, "its old rows are in "+a.Kept+"; drop that when you need it no more")
	case other != "" && other != a.Table:
		return refuse("the adoption of "+other+" has begun and not ended", "end that one first: `txmq migrate adopt --table "+other+" --apply`")
	case !there && !a.Begun:
		return refuse("does not exist", "check the name and the database")
	case a.Begun && there && !ours:
		return refuse("exists beside "+a.Kept, "an earlier adoption renamed it, and somebody made it anew, or that name is another's: rename one of them")
	case a.Begun:
		a.t.name = a.Kept
	case ours:
		return refuse("is txmq's already", "`txmq migrate status` says whether it is up to date")
	case a.Table == a.Ours && have > 0:
		return refuse("is not txmq's, but the tables beside it are", "rename it, and look at docs/cli.md")
	}
	return s.refuseForeign(ctx, a.Table)
}

// foreignSession runs do on a connection of its own, strict and in UTC, which is
// closed afterwards. RENAME waits there for wait, not for a day.
func (s *Store) foreignSession(ctx context.Context, wait time.Duration, do func(*sql.Conn) error) error {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
		_ = c.Close()
	}()
	_, err = c.ExecContext(ctx, "SET SESSION time_zone = '+00:00', SESSION sql_mode = 'STRICT_TRANS_TABLES', SESSION lock_wait_timeout = "+strconv.Itoa(wholeSeconds(wait)))
	if err != nil {
		return err
	}
	return do(c)
}

// lookAt fills in the rest of the plan.
func (s *Store) lookAt(ctx context.Context, c conn, a *Adoption) error {
	if err := a.t.read(ctx, c); err != nil {
		return err
	}
	if err := c.QueryRowContext(ctx, "SELECT COALESCE(engine, '') FROM information_schema.tables "+hereIs, a.t.name).Scan(&a.Engine); err != nil {
		return err
	}
	s.compare(a)
	if a.unusable(); a.Problems != nil {
		return nil // without these columns there is nothing to count
	}
	for _, part := range []func(context.Context, conn, *Adoption) error{s.countBad, s.countStates, s.countConsumers, s.countMerged, s.lookAtTimes} {
		if err := part(ctx, c, a); err != nil {
			return err
		}
	}
	a.Run = s.adoptSQL(a)
	return nil
}

const hereIs = "WHERE table_schema = DATABASE() AND table_name = ?"

// read asks for columns and keys.
func (t *foreign) read(ctx context.Context, c conn) error {
	err := each(ctx, c, func(scan func(...any) error) error {
		var c foreignColumn
		err := scan(&c.name, &c.kind, &c.full, &c.nullable, &c.preset, &c.charset, &c.collation)
		t.columns = append(t.columns, c)
		return err
	}, `SELECT LOWER(column_name), LOWER(data_type), LOWER(column_type), is_nullable = 'YES',
		COALESCE(column_default, 'NULL') <> 'NULL', COALESCE(character_set_name, ''), COALESCE(collation_name, '')
		FROM information_schema.columns `+hereIs+" ORDER BY ordinal_position", t.name)
	if err != nil {
		return err
	}
	return t.readKeys(ctx, c)
}

func (t *foreign) readKeys(ctx context.Context, c conn) error {
	t.indexes, t.unique = map[string]bool{}, map[string][]string{}
	err := each(ctx, c, func(scan func(...any) error) error {
		var index, column string
		var whole bool
		err := scan(&index, &column, &whole)
		if before, ok := t.indexes[index]; ok {
			whole = whole && before
		}
		t.indexes[index] = whole
		t.unique[index] = append(t.unique[index], column)
		return err
	}, `SELECT index_name, LOWER(column_name), non_unique = 0 AND sub_part IS NULL FROM information_schema.statistics `+
		hereIs+" AND column_name IS NOT NULL ORDER BY index_name, seq_in_index", t.name)
	if primary := t.unique["PRIMARY"]; primary != nil {
		t.key = primary[0]
	}
	maps.DeleteFunc(t.unique, func(index string, _ []string) bool { return !t.indexes[index] })
	return err
}

// each reads the rows of a query.
func each(ctx context.Context, c conn, row func(scan func(...any) error) error, query string, args ...any) (err error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

var wholeNumbers = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}

// text is the column's value, of the table t, as the bytes that a message
// carries.
func (c foreignColumn) text() string {
	q := "t." + quoted(c.name)
	switch {
	case c.charset != "":
		return "CAST(CONVERT(" + q + " USING utf8mb4) AS BINARY)"
	case slices.Contains(wholeNumbers, c.kind):
		return "CAST(CAST(" + q + " AS CHAR) AS BINARY)"
	default:
		return q
	}
}

// from is their table in a query, as t.
func (t *foreign) from() string { return " FROM " + quoted(t.name) + " t" }

// quoted is a name in MySQL's way, for names that are not ours.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// unusable reports what keeps the rows from being read at all.
func (a *Adoption) unusable() {
	for _, name := range []string{"event_id", "consumer", "status"} {
		c, ok := a.t.column(name)
		switch {
		case !ok && name == "consumer":
			a.problem("has no column consumer", "add it, filled with the handler's name: ALTER TABLE "+a.t.name+" ADD COLUMN consumer VARCHAR(255) NOT NULL DEFAULT 'NAME'")
		case !ok:
			a.problem("has no column "+name, "rename the one that is meant: ALTER TABLE "+a.t.name+" RENAME COLUMN OLD TO "+name)
		case name != "status" && c.charset == "" && c.kind != "varbinary" && !slices.Contains(wholeNumbers, c.kind):
			a.problem(name+" is "+c.full+", which is not the text that messages carry", "make a column of that text, VARCHAR or VARBINARY, and call it "+name)
		}
	}
	switch key, ok := a.t.column(a.t.key); {
	case !ok:
		a.problem("has no primary key to copy it by", "ALTER TABLE "+a.t.name+" ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY")
	case key.charset == "" && key.kind != "varbinary" && !slices.Contains(wholeNumbers, key.kind):
		a.problem(fmt.Sprintf("its primary key begins with %s, which is %s", key.name, key.full), "make it a whole number or a text")
	}
}
