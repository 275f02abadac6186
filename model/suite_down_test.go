package model

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

var downChecks = []check{
	{name: "down and up again, step by step and all at once, is the same as up", needs: ddl, run: func(t *testing.T, b *bundle) {
		cfg := Config{Prefix: "dn_"}
		_, err := Migrate(t.Context(), b.db, cfg)
		want(t, err)
		before, top := b.schema(t, "dn_"), latest(b.s.d)
		for to := top - 1; to >= 0; to-- { // one step, and from where that leads up again
			steps, err := MigrateDown(t.Context(), b.db, cfg, to)
			if err != nil || len(steps) != int(top-to) || steps[0].Version != top {
				t.Fatalf("MigrateDown to %d = %v, %v", to, steps, err)
			}
			all, err := MigrationStatus(t.Context(), b.db, cfg)
			for _, s := range all {
				if err != nil || s.Applied != (s.Version <= to) {
					t.Errorf("after down to %d: %+v, %v", to, s, err)
				}
			}
			if steps, err = Migrate(t.Context(), b.db, cfg); err != nil || len(steps) != int(top-to) {
				t.Fatalf("Migrate from %d = %v, %v", to, steps, err)
			}
			if diff := cmp.Diff(before, b.schema(t, "dn_")); diff != "" {
				t.Errorf("schema after down to %d and up (-before +after):\n%s", to, diff)
			}
		}
		for to := top - 1; to >= 0; to-- {
			if _, err := MigrateDown(t.Context(), b.db, cfg, to); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.tablesLike(t, "dn_"); n != 1 {
			t.Errorf("%d tables at version 0, want that of the versions", n)
		}
		steps, err := MigrateDown(t.Context(), b.db, cfg, 0)
		if err != nil || len(steps) != 0 {
			t.Errorf("MigrateDown once more = %v, %v, want nothing", steps, err)
		}
	}},
	{name: "a way down that was cut off is taken up again", needs: ddl, run: func(t *testing.T, b *bundle) {
		if !b.server {
			return // SQLite's DDL is rolled back with its transaction
		}
		cfg := Config{Prefix: "dc_"}
		_, err := Migrate(t.Context(), b.db, cfg)
		want(t, err)
		exec(t, b.db, "DROP TABLE dc_audit")
		exec(t, b.db, "ALTER TABLE dc_msg_consume DROP KEY idx_compensate, DROP COLUMN redriven_at")
		p, err := PlanDown(t.Context(), b.db, cfg, 0)
		if err != nil || len(p.Lost) != len(tables) {
			t.Errorf("PlanDown = %+v, %v", p.Lost, err)
		}
		_, err = PlanDown(t.Context(), b.db, cfg, 1)
		want(t, err)
		_, err = MigrateDown(t.Context(), b.db, cfg, 0)
		want(t, err)
		if n := b.tablesLike(t, "dc_"); n != 1 {
			t.Errorf("%d tables, want 1", n)
		}
	}},
	{name: "PlanDown counts what would be lost, and changes nothing", run: func(t *testing.T, b *bundle) {
		b.apply(t, "e1")
		b.in(t, "e2", Fail)
		exec(t, b.db, "UPDATE t_msg_consume SET redriven_at = next_retry_at WHERE event_id = 'e2'")
		p, err := PlanDown(t.Context(), b.db, Config{}, 0)
		want(t, err)
		if !slices.Contains(p.Lost, Lost{Table: "t_msg_consume", Rows: 2}) || len(p.Lost) != len(tables) {
			t.Errorf("Lost = %+v, want every table, and 2 rows of t_msg_consume", p.Lost)
		}
		p, err = PlanDown(t.Context(), b.db, Config{}, 1)
		want(t, err)
		if !slices.Contains(p.Lost, Lost{Table: "t_msg_consume", Column: "redriven_at", Rows: 1}) || len(p.Steps) != int(latest(b.s.d)-1) {
			t.Errorf("plan = %+v", p)
		}
		if !strings.Contains(p.SQL, "DROP TABLE") || strings.Contains(p.SQL, "goose") {
			t.Errorf("SQL = %s", p.SQL)
		}
		if r := b.find(t, "e2"); r.Status != Fail {
			t.Error("the plan has changed the tables")
		}
	}},
	{name: "PlanUp says what is left, and refuses as Migrate does", needs: ddl, run: func(t *testing.T, b *bundle) {
		p, err := PlanUp(t.Context(), b.db, Config{})
		if err != nil || len(p.Steps) != 0 || p.SQL != "" {
			t.Errorf("PlanUp when up to date = %+v, %v", p, err)
		}
		p, err = PlanUp(t.Context(), b.db, Config{Prefix: "pu_"})
		if err != nil || len(p.Steps) != len(files(b.s.d)) || !strings.Contains(p.SQL, "pu_msg_consume") || strings.Contains(p.SQL, "DROP") {
			t.Errorf("PlanUp = %+v, %v", p, err)
		}
		if n := b.tablesLike(t, "pu_"); n != 0 {
			t.Errorf("the plan made %d tables", n)
		}
		exec(t, b.db, "CREATE TABLE pf_meta (id INT)")
		_, err = PlanUp(t.Context(), b.db, Config{Prefix: "pf_"})
		schemaErr(t, "PlanUp", err, "pf_meta", "prefix")
	}},
	{name: "a way down that leads nowhere is refused", needs: ddl, run: func(t *testing.T, b *bundle) {
		var field *txmq.FieldError
		if _, err := MigrateDown(t.Context(), b.db, Config{}, -1); !errors.As(err, &field) {
			t.Errorf("MigrateDown below 0 = %v, want a FieldError", err)
		}
		if _, err := MigrateDown(t.Context(), b.db, Config{}, latest(b.s.d)+1); !errors.As(err, &field) {
			t.Errorf("MigrateDown above the last step = %v, want a FieldError", err)
		}
		_, err := PlanDown(t.Context(), b.db, Config{Prefix: "nothing_"}, 1)
		schemaErr(t, "PlanDown without tables", err, "migrate up")
		_, err = Migrate(t.Context(), b.db, Config{Prefix: "newer_"})
		want(t, err)
		exec(t, b.db, "INSERT INTO newer_txmq_version (version_id, is_applied) VALUES (9999, TRUE)")
		_, err = MigrateDown(t.Context(), b.db, Config{Prefix: "newer_"}, 0)
		schemaErr(t, "MigrateDown of newer tables", err, "newer")
	}},
}

// What a step down drops is read from its text, so each has to be of a form
// that is understood.
func TestDownStatementsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect{mysqlDialect(), sqliteDialect()} {
		for _, name := range files(d) {
			_, down := ways(source(d, name, "p_"))
			dropped := strings.Count(down, "DROP TABLE") + strings.Count(down, "DROP COLUMN")
			if lost := lostBy(down); len(lost) != dropped || dropped == 0 {
				t.Errorf("%s/%s: understood %+v of %d that are dropped", d.name, name, lost, dropped)
			}
			for _, l := range lostBy(down) {
				if !strings.HasPrefix(l.Table, "p_") {
					t.Errorf("%s/%s drops %s", d.name, name, l.Table)
				}
			}
		}
	}
}
