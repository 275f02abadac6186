package model

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
)

// schemaErr checks that err is a SchemaError that names each of words.
func schemaErr(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	var schema *txmq.SchemaError
	if !errors.As(err, &schema) {
		t.Errorf("%s = %v, want a SchemaError", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %q, want %q in it", what, err, w)
		}
	}
}

var openChecks = []check{
	{name: "Open gives the ID that Migrate wrote, the same each time", run: func(t *testing.T, b *bundle) {
		id := b.s.DatabaseID()
		if _, err := uuid.Parse(id); err != nil {
			t.Errorf("DatabaseID = %q: %v", id, err)
		}
		if steps, err := Migrate(t.Context(), b.db, Config{}); err != nil || len(steps) != 0 {
			t.Errorf("second Migrate = %v, %v, want no step", steps, err)
		}
		if again := b.store(t, Config{}).DatabaseID(); again != id {
			t.Errorf("DatabaseID = %q, then %q", id, again)
		}
	}},
	{name: "Open refuses a database without tables, and MigrationStatus says so", run: func(t *testing.T, b *bundle) {
		_, err := Open(t.Context(), b.db, Config{Prefix: "none_"})
		schemaErr(t, "Open", err, "none_", "migrate up")
		steps, err := MigrationStatus(t.Context(), b.db, Config{Prefix: "none_"})
		if err != nil || len(steps) != len(files(b.s.d)) || steps[0].Applied {
			t.Errorf("MigrationStatus = %v, %v, want every step, none applied", steps, err)
		}
		steps, err = MigrationStatus(t.Context(), b.db, Config{})
		if err != nil || !steps[len(steps)-1].Applied {
			t.Errorf("MigrationStatus = %v, %v, want all applied", steps, err)
		}
	}},
	{name: "Open refuses older tables, and takes newer ones", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "old_"})
		want(t, err)
		exec(t, b.db, "INSERT INTO old_txmq_version (version_id, is_applied) VALUES (9999, TRUE)")
		_, err = Open(t.Context(), b.db, Config{Prefix: "old_"})
		want(t, err)
		exec(t, b.db, "DELETE FROM old_txmq_version WHERE version_id > 0")
		_, err = Open(t.Context(), b.db, Config{Prefix: "old_"})
		schemaErr(t, "Open", err, "migrate up")
	}},
	{name: "Open refuses a database without an ID", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "noid_"})
		want(t, err)
		exec(t, b.db, "DELETE FROM noid_meta")
		_, err = Open(t.Context(), b.db, Config{Prefix: "noid_"})
		schemaErr(t, "Open", err, "noid_meta", "migrate up")
		_, err = Migrate(t.Context(), b.db, Config{Prefix: "noid_"})
		want(t, err)
		_, err = Open(t.Context(), b.db, Config{Prefix: "noid_"})
		want(t, err)
	}},
	{name: "B12 Open refuses a handle that is inside a transaction", run: func(t *testing.T, b *bundle) {
		err := b.db.Transaction(func(tx *gorm.DB) error {
			for name, db := range map[string]*gorm.DB{
				"tx": tx, "a session of it": tx.Session(&gorm.Session{NewDB: true}), "a prepared session of it": tx.Session(&gorm.Session{PrepareStmt: true}),
				"with a context": tx.WithContext(t.Context()),
			} {
				_, err := Open(t.Context(), db, Config{})
				wantErr(t, "Open with "+name, err, txmq.ErrInTransaction)
				if !InTransaction(db) {
					t.Errorf("InTransaction(%s) = false", name)
				}
			}
			return nil
		})
		want(t, err)
		if InTransaction(b.db) || InTransaction(b.db.Session(&gorm.Session{PrepareStmt: true})) {
			t.Error("InTransaction outside = true")
		}
		tx := b.begin(t)
		if !InTransaction(tx.DB()) || !InTransaction(tx.DB().Session(&gorm.Session{PrepareStmt: true})) {
			t.Error("InTransaction in our own = false")
		}
	}},
	{name: "a bad prefix is refused", run: func(t *testing.T, b *bundle) {
		for _, prefix := range []string{"t-", "t ", "t;", "`", "é", strings.Repeat("p", 33), "t_\n"} {
			var field *txmq.FieldError
			if _, err := Open(t.Context(), b.db, Config{Prefix: prefix}); !errors.As(err, &field) {
				t.Errorf("Open(%q) = %v, want a FieldError", prefix, err)
			}
			if _, err := Migrate(t.Context(), b.db, Config{Prefix: prefix}); !errors.As(err, &field) {
				t.Errorf("Migrate(%q) = %v, want a FieldError", prefix, err)
			}
			if _, err := Print(b.s.d.name, Config{Prefix: prefix}); !errors.As(err, &field) {
				t.Errorf("Print(%q) = %v, want a FieldError", prefix, err)
			}
		}
	}},
	{name: "a longest prefix works, and its tables are apart", needs: ddl, run: func(t *testing.T, b *bundle) {
		cfg := Config{Prefix: "P" + strings.Repeat("p_", 15) + "1"}
		_, err := Migrate(t.Context(), b.db, cfg)
		want(t, err)
		s, err := Open(t.Context(), b.db, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Claim(t.Context(), arrival("e"), "w1", minute, short); err != nil {
			t.Error(err)
		}
		if s.DatabaseID() == b.s.DatabaseID() || s.Table("msg_consume") != cfg.Prefix+"msg_consume" {
			t.Errorf("ID %s, table %s", s.DatabaseID(), s.Table("msg_consume"))
		}
		b.absent(t, "e")
	}},
	{name: "a table that txmq did not make is refused", needs: ddl, run: func(t *testing.T, b *bundle) {
		for _, table := range tables {
			prefix := "f" + table.name + "_"
			exec(t, b.db, "CREATE TABLE "+prefix+table.name+" (id INT)")
			_, err := Migrate(t.Context(), b.db, Config{Prefix: prefix})
			schemaErr(t, "Migrate", err, prefix+table.name, "prefix")
			if n := b.tablesLike(t, prefix); n != 1 {
				t.Errorf("%d tables with prefix %s, want the foreign one only", n, prefix)
			}
		}
	}},
	{name: "a later step refuses a table that txmq did not make, and takes up its own", needs: ddl, run: func(t *testing.T, b *bundle) {
		b.upTo(t, "later_", 1)
		exec(t, b.db, "CREATE TABLE later_run (id INT)")
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "later_"})
		schemaErr(t, "Migrate", err, "later_run", "prefix")
		_, err = Open(t.Context(), b.db, Config{Prefix: "later_"})
		schemaErr(t, "Open", err, "older", "migrate up")
		exec(t, b.db, "DROP TABLE later_run")
		_, err = Migrate(t.Context(), b.db, Config{Prefix: "later_"})
		want(t, err)
		if b.server { // SQLite's DDL is rolled back with its transaction
			for _, left := range []string{"later_run", "later_audit"} {
				exec(t, b.db, "DROP TABLE "+left)
				exec(t, b.db, "DELETE FROM later_txmq_version WHERE version_id > 1")
				_, err = Migrate(t.Context(), b.db, Config{Prefix: "later_"})
				want(t, err)
			}
		}
		_, err = Open(t.Context(), b.db, Config{Prefix: "later_"})
		want(t, err)
	}},
	{name: "up, down, up is the same as up", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "ud_"})
		want(t, err)
		before := b.schema(t, "ud_")
		s, err := connect(t.Context(), "Open", b.db, Config{Prefix: "ud_"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.provider()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.DownTo(t.Context(), 0)
		want(t, err)
		if n := b.tablesLike(t, "ud_"); n != 1 {
			t.Errorf("%d tables after going down, want the version table only", n)
		}
		_, err = Migrate(t.Context(), b.db, Config{Prefix: "ud_"})
		want(t, err)
		if diff := cmp.Diff(before, b.schema(t, "ud_")); diff != "" {
			t.Errorf("schema (-up +up down up):\n%s", diff)
		}
		_, err = Open(t.Context(), b.db, Config{Prefix: "ud_"})
		want(t, err)
	}},
	{name: "two migrations at once wait for one another", needs: twoDDL, run: func(t *testing.T, b *bundle) {
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { _, errs[i] = Migrate(t.Context(), b.db, Config{Prefix: "at_once_"}) })
		}
		wg.Wait()
		want(t, errors.Join(errs...))
		_, err := Open(t.Context(), b.db, Config{Prefix: "at_once_"})
		want(t, err)
		if n := b.count(t, "SELECT COUNT(*) FROM at_once_txmq_version WHERE version_id = 1"); n != 1 {
			t.Errorf("step 1 was taken %d times, want 1", n)
		}
	}},
	{name: "a first migration that was cut off is taken up again", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "cut_"})
		want(t, err)
		if b.server { // SQLite's DDL is rolled back with its transaction
			exec(t, b.db, "DROP TABLE cut_job_lease")
			exec(t, b.db, "DELETE FROM cut_txmq_version WHERE version_id > 0")
		}
		exec(t, b.db, "DELETE FROM cut_meta")
		_, err = Migrate(t.Context(), b.db, Config{Prefix: "cut_"})
		want(t, err)
		_, err = Open(t.Context(), b.db, Config{Prefix: "cut_"})
		want(t, err)
	}},
	{name: "what Print gives does the same by hand", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "pa_"})
		want(t, err)
		text, err := Print(b.s.d.name, Config{Prefix: "pb_"})
		if err != nil {
			t.Fatal(err)
		}
		pool, err := b.db.DB()
		if err != nil {
			t.Fatal(err)
		}
		session, err := pool.Conn(t.Context()) // as a person's: later steps set variables of the session
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(text, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := session.ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
		want(t, session.Close())
		if diff := cmp.Diff(b.schema(t, "pa_"), strings.ReplaceAll(b.schema(t, "pb_"), "pb_", "pa_")); diff != "" {
			t.Errorf("schema (-Migrate +Print):\n%s", diff)
		}
		s, err := Open(t.Context(), b.db, Config{Prefix: "pb_"})
		if err != nil {
			t.Fatal(err)
		}
		if id := s.DatabaseID(); len(id) < 32 || id == b.s.DatabaseID() {
			t.Errorf("DatabaseID = %q, want a random one", id)
		}
		if steps, err := Migrate(t.Context(), b.db, Config{Prefix: "pb_"}); err != nil || len(steps) != 0 {
			t.Errorf("Migrate afterwards = %v, %v, want no step", steps, err)
		}
	}},
	{name: "Ping, Table and MaxOpenConns tell of the pool", run: func(t *testing.T, b *bundle) {
		want(t, b.s.Ping(t.Context()))
		if n := b.s.MaxOpenConns(); (n == 1) != b.single {
			t.Errorf("MaxOpenConns = %d", n)
		}
		if b.s.DB() != b.db {
			t.Error("DB is not what was given to Open")
		}
	}},
}

// upTo takes the steps up to one.
func (b *bundle) upTo(t *testing.T, prefix string, step int64) {
	t.Helper()
	s, err := connect(t.Context(), "Open", b.db, Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.provider()
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.UpTo(t.Context(), step)
	want(t, err)
}

func (b *bundle) tablesLike(t *testing.T, prefix string) int64 {
	t.Helper()
	if b.server {
		return b.count(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	}
	return b.count(t, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND substr(name, 1, ?) = ?", len(prefix), prefix)
}

// schema is the DDL of all tables with a prefix, as the database tells it.
func (b *bundle) schema(t *testing.T, prefix string) string {
	t.Helper()
	if !b.server {
		var all []string
		err := b.db.Raw("SELECT COALESCE(sql, '') FROM sqlite_master WHERE substr(tbl_name, 1, ?) = ? ORDER BY name", len(prefix), prefix).Scan(&all).Error
		want(t, err)
		return strings.Join(all, "\n")
	}
	var text strings.Builder
	names := []string{"txmq_version"}
	for _, t := range tables {
		names = append(names, t.name)
	}
	for _, name := range names {
		var table, ddl string
		want(t, b.s.pool.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+prefix+name).Scan(&table, &ddl))
		head, tail, _ := strings.Cut(ddl, "AUTO_INCREMENT=")
		_, tail, _ = strings.Cut(tail, " ")
		fmt.Fprintln(&text, head, tail)
	}
	return text.String()
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	t.Run("nil", func(t *testing.T) {
		var field *txmq.FieldError
		if _, err := Open(t.Context(), nil, Config{}); !errors.As(err, &field) {
			t.Errorf("Open(nil) = %v, want a FieldError", err)
		}
	})
	t.Run("a database that is not supported", func(t *testing.T) {
		db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{Logger: logger.Discard})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), db, Config{})
		schemaErr(t, "Open", err, "dummy", "MariaDB")
		_, err = Print("dummy", Config{})
		var field *txmq.FieldError
		if !errors.As(err, &field) {
			t.Errorf("Print(dummy) = %v, want a FieldError", err)
		}
	})
	t.Run("B40 a DSN without parseTime", func(t *testing.T) {
		db := opened(t, mysql.Open(testenv.MySQL(t, "parseTime=false")), &gorm.Config{Logger: logger.Discard})
		_, err := Open(t.Context(), db, Config{})
		schemaErr(t, "Open", err, "parseTime=true")
		_, err = Migrate(t.Context(), db, Config{})
		schemaErr(t, "Migrate", err, "parseTime=true")
	})
	t.Run("a database that is away", func(t *testing.T) {
		db, err := gorm.Open(mysql.New(mysql.Config{DSN: "u:p@tcp(127.0.0.1:1)/d", SkipInitializeWithVersion: true}),
			&gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
		if err != nil {
			t.Fatal(err)
		}
		pool, err := db.DB()
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		_, err = Open(t.Context(), db, Config{})
		var op *txmq.OpError
		if !errors.As(err, &op) {
			t.Errorf("Open = %v, want an OpError", err)
		}
	})
}

func TestServerVersions(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"8.0.36": true, "8.0.11-log": true, "8.4.0": true, "9.1.0": true, "10.6.0-MariaDB": true, "10.11.19-MariaDB-0+deb12u1": true,
		"11.4.2-MariaDB": true, "5.5.5-10.6.12-MariaDB-log": true, "12.0.1-MariaDB": true, "8.0.mysql_aurora.3.05.2": true,
		"5.7.44": false, "5.7.44-log": false, "5.6.51": false, "10.5.23-MariaDB": false, "5.5.5-10.3.39-MariaDB": false,
		"10.2-MariaDB": false, "": false, "x": false, "7": false,
	} {
		err := mysqlVersion(version)
		if ok {
			want(t, err)
		} else {
			schemaErr(t, "mysqlVersion("+version+")", err, "not supported")
		}
	}
}

func TestDialectsHaveTheSameSteps(t *testing.T) {
	t.Parallel()
	steps := map[string][]string{}
	for _, d := range []dialect{mysqlDialect(), sqliteDialect()} {
		steps[d.name] = files(d)
		for i, name := range files(d) {
			if number(name) != int64(i+1) {
				t.Errorf("%s: step %d is %s", d.name, i+1, name)
			}
			if text := source(d, name, "p_"); strings.Contains(text, "{{") || !strings.Contains(text, "-- +goose Down") {
				t.Errorf("%s: %s is not filled, or has no way down", d.name, name)
			}
		}
	}
	if diff := cmp.Diff(steps["mysql"], steps["sqlite"]); diff != "" {
		t.Errorf("steps (-mysql +sqlite):\n%s", diff)
	}
}
