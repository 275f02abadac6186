package model

import (
	"fmt"
	"strings"
	"testing"
)

// column is what a program that does not know of later steps relies on.
type column struct {
	kind     string // with its collation
	nullable bool
	def      bool // INSERT may leave it out
}

var expandChecks = []check{
	{name: "a later step only adds what an older program can leave out", needs: ddl, run: func(t *testing.T, b *bundle) {
		for step := int64(1); step < latest(b.s.d); step++ {
			prefix := fmt.Sprintf("x%d_", step)
			b.upTo(t, prefix, step)
			before := b.columns(t, prefix)
			b.upTo(t, prefix, step+1)
			for _, wrong := range notExpanded(before, b.columns(t, prefix)) {
				t.Errorf("step %d: %s", step+1, wrong)
			}
		}
	}},
	{name: "Open takes the tables of a later program", needs: ddl, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "future_"})
		want(t, err)
		exec(t, b.db, "ALTER TABLE future_msg_consume ADD COLUMN of_tomorrow INT NULL")
		exec(t, b.db, "CREATE TABLE future_of_tomorrow (id INT)")
		exec(t, b.db, fmt.Sprintf("INSERT INTO future_txmq_version (version_id, is_applied) VALUES (%d, TRUE)", latest(b.s.d)+1))
		s, err := Open(t.Context(), b.db, Config{Prefix: "future_"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), arrival("e"), "w", minute, short)
		want(t, err)
		tx, err := s.Begin(t.Context())
		want(t, err)
		want(t, tx.Succeed(t.Context(), Held{EventID: "e", Consumer: arrival("e").Consumer, Owner: "w", Version: c.Version}))
		want(t, tx.Commit(t.Context()))
		if r, err := s.Find(t.Context(), "e", arrival("e").Consumer); err != nil || r.Status != Success {
			t.Errorf("record = %+v, %v, want SUCCESS", r, err)
		}
		steps, err := Migrate(t.Context(), b.db, Config{Prefix: "future_"})
		if err != nil || len(steps) != 0 {
			t.Errorf("Migrate = %v, %v, want no step and no error", steps, err)
		}
	}},
}

// notExpanded says what a program of before can't live with.
func notExpanded(before, after map[string]column) (wrong []string) {
	had := map[string]bool{} // tables
	for name, old := range before {
		table, _, _ := strings.Cut(name, ".")
		had[table] = true
		if now, ok := after[name]; !ok || now != old {
			wrong = append(wrong, fmt.Sprintf("column %s was %+v, and is %+v", name, old, now))
		}
	}
	for name, now := range after {
		table, _, _ := strings.Cut(name, ".")
		if _, old := before[name]; !old && had[table] && !now.nullable && !now.def {
			wrong = append(wrong, fmt.Sprintf("column %s is new, and an older program's INSERT has no value for it", name))
		}
	}
	return wrong
}

// columns are those of all tables with a prefix, by table.column.
func (b *bundle) columns(t *testing.T, prefix string) map[string]column {
	t.Helper()
	query := `SELECT m.name, c.name, c.type, c."notnull" = 0, c.dflt_value IS NOT NULL OR c.pk > 0
		FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND substr(m.name, 1, ?) = ?`
	if b.server {
		query = `SELECT table_name, column_name, CONCAT(column_type, ' ', COALESCE(collation_name, '')), is_nullable = 'YES',
			column_default IS NOT NULL OR extra = 'auto_increment'
			FROM information_schema.columns WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?`
	}
	rows, err := b.s.pool.QueryContext(t.Context(), query, len(prefix), prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]column{}
	for rows.Next() {
		var table, name string
		var c column
		want(t, rows.Scan(&table, &name, &c.kind, &c.nullable, &c.def))
		found[table+"."+name] = c
	}
	want(t, rows.Err())
	if len(found) == 0 {
		t.Fatalf("no columns with prefix %s", prefix)
	}
	return found
}

func TestNotExpanded(t *testing.T) {
	t.Parallel()
	old := map[string]column{"a.x": {kind: "int"}}
	for name, c := range map[string]struct {
		after map[string]column
		bad   bool
	}{
		"the same":               {old, false},
		"a table more":           {map[string]column{"a.x": {kind: "int"}, "b.x": {kind: "int"}}, false},
		"a nullable column":      {map[string]column{"a.x": {kind: "int"}, "a.y": {kind: "int", nullable: true}}, false},
		"a column with default":  {map[string]column{"a.x": {kind: "int"}, "a.y": {kind: "int", def: true}}, false},
		"a column that is asked": {map[string]column{"a.x": {kind: "int"}, "a.y": {kind: "int"}}, true},
		"a column gone":          {map[string]column{}, true},
		"a column of other kind": {map[string]column{"a.x": {kind: "bigint"}}, true},
		"a column made not null": {map[string]column{"a.x": {kind: "int", nullable: true}}, true},
	} {
		if wrong := notExpanded(old, c.after); (len(wrong) > 0) != c.bad {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
