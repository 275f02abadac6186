package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
)

func serverDDL(h harness) bool { return h.server && !h.same }

// onePlainServer: what takes much DDL, and depends on no flavour.
func onePlainServer(h harness) bool { return h.name == "mariadb" }

// handwritten is a consume table as people write it.
const handwritten = `CREATE TABLE %s (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_id   VARCHAR(64)  NOT NULL,
  consumer   VARCHAR(64)  NOT NULL,
  status     %s,
  retry_cnt  INT          NOT NULL DEFAULT 0,
  last_error TEXT         NULL,
  created_at DATETIME     NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  remark     VARCHAR(20)  NULL,
  UNIQUE KEY uk_event_consumer (event_id, consumer),
  KEY idx_sweep (status)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_general_ci`

// theirs makes one with the given rows of event and status.
func (b *bundle) theirs(t *testing.T, table, status string, rows ...[2]any) {
	t.Helper()
	exec(t, b.db, fmt.Sprintf(handwritten, table, status))
	for i, r := range rows {
		exec(t, b.db, "INSERT INTO "+table+" (event_id, consumer, status, retry_cnt, last_error, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			r[0], handler, r[1], 20+i, fmt.Sprintf("error %d", i), "2026-01-02 03:04:05", "2026-01-02 03:04:06")
	}
}

var words = [][2]any{{"done", "SUCCESS"}, {"under way", "PROCESSING"}, {"failed", "FAIL"}, {"buried", "DEAD"}}

const wordsType = "VARCHAR(20) NOT NULL"

func (b *bundle) adopt(t *testing.T, prefix string, c AdoptConfig) (Adoption, *Store) {
	t.Helper()
	a, err := Adopt(t.Context(), b.db, Config{Prefix: prefix}, c)
	if err != nil {
		t.Fatalf("Adopt(%+v): %v", c, err)
	}
	s, err := Open(t.Context(), b.db, Config{Prefix: prefix, Clock: b.clock})
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

// decided checks what a delivery of any body finds.
func decided(t *testing.T, s *Store, event string, want Decision) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := tx.Apply(t.Context(), arrival(event), short)
	tx.Rollback()
	if err != nil || c.Decision != want {
		t.Errorf("Apply(%q) = %+v, %v, want %v", event, c, err, want)
	}
	if c, err = s.Claim(t.Context(), arrival(event), "w1", minute, short); err != nil || c.Decision != want {
		t.Errorf("Claim(%q) = %+v, %v, want %v", event, c, err, want)
	}
}

var adoptChecks = []check{
	{name: "an adopted SUCCESS is a duplicate; PROCESSING and FAIL run; DEAD stays", needs: serverDDL, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "a1_msg_consume", wordsType, words...)
		a, s := b.adopt(t, "a1_", AdoptConfig{Table: "a1_msg_consume"})
		if a.Rows != 4 || a.Kept != "a1_msg_consume_before_txmq" || a.Ours != "a1_msg_consume" {
			t.Errorf("adoption = %+v", a)
		}
		for event, want := range map[string]string{
			"done":      `SUCCESS v1 retries 20 owner "" error "error 0"`,
			"under way": `FAIL v1 retries 0 owner "" error "adopted from a1_msg_consume_before_txmq, where it was under way: whether it was done is not known"`,
			"failed":    `FAIL v1 retries 0 owner "" error "error 2"`,
			"buried":    `DEAD v1 retries 23 owner "" error "error 3"`,
		} {
			r, err := s.Find(t.Context(), event, handler)
			got := fmt.Sprintf("%s v%d retries %d owner %q error %q", r.Status, r.Version, r.RetryCnt, r.Owner, r.LastError)
			if err != nil || got != want {
				t.Errorf("%s = %s, %v, want %s", event, got, err, want)
			}
			if at := r.CreatedAt.UTC().Format(timeLayout); at != "2026-01-02 03:04:05.000" || !r.NextRetryAt.IsZero() {
				t.Errorf("%s: created at %s, next retry at %v", event, at, r.NextRetryAt)
			}
		}
		if due, err := s.Due(t.Context(), 0, 10); err != nil || len(due) != 0 {
			t.Errorf("Due = %v, %v: no job can deliver what lies nobody knows where", due, err)
		}
		decided(t, s, "done", Duplicate)
		decided(t, s, "under way", Run)
		decided(t, s, "failed", Run)
		decided(t, s, "buried", Buried)
		decided(t, s, "never seen", Run)
		if n := b.count(t, "SELECT COUNT(*) FROM a1_msg_consume_before_txmq"); n != 4 {
			t.Errorf("%d rows are kept, want 4", n)
		}
		_, err := Adopt(t.Context(), b.db, Config{Prefix: "a1_"}, AdoptConfig{Table: "a1_msg_consume"})
		schemaErr(t, "Adopt again", err, "was adopted at", "4 rows")
		if steps, err := Migrate(t.Context(), b.db, Config{Prefix: "a1_"}); err != nil || len(steps) != 0 {
			t.Errorf("Migrate afterwards = %v, %v", steps, err)
		}
		// The way back, and there again.
		_, err = MigrateDown(t.Context(), b.db, Config{Prefix: "a1_"}, 0)
		want(t, err)
		exec(t, b.db, "RENAME TABLE a1_msg_consume_before_txmq TO a1_msg_consume")
		_, s = b.adopt(t, "a1_", AdoptConfig{Table: "a1_msg_consume"})
		decided(t, s, "done", Duplicate)
	}},
	{name: "numbers are told what they mean, never guessed", needs: serverDDL, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "a2_msg_consume", "TINYINT NOT NULL DEFAULT 0", [2]any{"p", 0}, [2]any{"s", 1}, [2]any{"f", 2})
		cfg, c := Config{Prefix: "a2_"}, AdoptConfig{Table: "a2_msg_consume"}
		before := b.schema2(t, "a2_msg_consume")
		_, err := Adopt(t.Context(), b.db, cfg, c)
		schemaErr(t, "Adopt", err, "numbers", "--map 0=PROCESSING,1=SUCCESS,2=FAIL")
		if b.tablesLike(t, "a2_") != 1 || b.schema2(t, "a2_msg_consume") != before {
			t.Error("a refused adoption has changed something")
		}
		c.Map = map[string]Status{"0": Success, "1": Processing, "2": Fail} // this team counts otherwise
		_, s := b.adopt(t, "a2_", c)
		decided(t, s, "p", Duplicate)
		decided(t, s, "s", Run)
		decided(t, s, "f", Run)
	}},
	{name: "an unknown state is refused by name and count, unless it is mapped", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "a3_msg_consume", "VARCHAR(20) NULL", [2]any{"a", "done"}, [2]any{"b", "DONE"}, [2]any{"c", "consuming"}, [2]any{"d", " Consumed"}, [2]any{"e", nil})
		_, err := Adopt(t.Context(), b.db, Config{Prefix: "a3_"}, AdoptConfig{Table: "a3_msg_consume", Map: map[string]Status{"DONE": Success}})
		schemaErr(t, "Adopt", err, `"done" (1 rows)`, `"NULL" (1 rows)`, "--map")
		if strings.Contains(err.Error(), `"DONE"`) {
			t.Errorf("a mapped state is refused: %v", err)
		}
		_, s := b.adopt(t, "a3_", AdoptConfig{Table: "a3_msg_consume", Map: map[string]Status{"DONE": Success, "done": Dead, "NULL": Fail}})
		for event, want := range map[string]Decision{"a": Buried, "b": Duplicate, "c": Run, "d": Duplicate, "e": Run} {
			decided(t, s, event, want)
		}
	}},
	{name: "B29 keys that their collation took for one are apart, and none is lost", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "a4_msg_consume", wordsType)
		exec(t, b.db, "ALTER TABLE a4_msg_consume DROP KEY uk_event_consumer") // as after it was found to be too coarse
		for _, event := range []string{"Evt-A", "evt-a", "Evt-A ", "é", "e", "订单1", "😀", `\'%_?`} {
			exec(t, b.db, "INSERT INTO a4_msg_consume (event_id, consumer, status) VALUES (?, ?, 'SUCCESS')", event, handler)
		}
		a, s := b.adopt(t, "a4_", AdoptConfig{Table: "a4_msg_consume", Chunk: 3})
		if !strings.Contains(strings.Join(a.Notes, "\n"), "utf8mb4_general_ci; from now on byte by byte") ||
			!strings.Contains(strings.Join(a.Notes, "\n"), "1 rows have an event_id or a consumer that ends with a space") {
			t.Errorf("notes = %q", a.Notes)
		}
		for _, event := range []string{"Evt-A", "evt-a", "Evt-A ", "é", "e", "订单1", "😀", `\'%_?`} {
			decided(t, s, event, Duplicate)
		}
		decided(t, s, "EVT-A", Run)
	}},
	{name: "what can't be a key is refused, all at once, and nothing is changed", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		exec(t, b.db, "CREATE TABLE a5_old (id INT PRIMARY KEY, event_id VARCHAR(300) NULL, consumer VARCHAR(64), status VARCHAR(9))")
		for i, event := range []any{"twice", "twice", nil, "", strings.Repeat("é", 128)} {
			exec(t, b.db, "INSERT INTO a5_old VALUES (?, ?, 'c', 'LOST')", i, event)
		}
		_, err := Adopt(t.Context(), b.db, Config{Prefix: "a5_"}, AdoptConfig{Table: "a5_old"})
		schemaErr(t, "Adopt", err, "2 rows have no event_id", "1 rows have an event_id or a consumer of more than 255 bytes",
			"1 pairs of event_id and consumer have more than one row", `"LOST" (5 rows)`)
		if n := b.tablesLike(t, "a5_"); n != 1 {
			t.Errorf("%d tables, want theirs only", n)
		}
	}},
	{name: "a table without what is needed is refused with the way to it", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		for table, c := range map[string]struct {
			ddl   string
			words []string
		}{
			"a6_a": {"id INT PRIMARY KEY, event_id VARCHAR(64), status INT", []string{"no column consumer", "ADD COLUMN consumer"}},
			"a6_b": {"id INT PRIMARY KEY, msg_key VARCHAR(64), consumer VARCHAR(64), state INT", []string{"no column event_id", "no column status", "RENAME COLUMN"}},
			"a6_c": {"event_id VARCHAR(64), consumer VARCHAR(64), status INT", []string{"no primary key"}},
			"a6_d": {"id INT PRIMARY KEY, event_id BINARY(16), consumer VARCHAR(64), status INT", []string{"event_id is binary(16)"}},
			"a6_e": {"at DATETIME PRIMARY KEY, event_id VARCHAR(64), consumer VARCHAR(64), status INT", []string{"begins with at, which is datetime"}},
		} {
			exec(t, b.db, "CREATE TABLE "+table+" ("+c.ddl+")")
			a, err := PlanAdopt(t.Context(), b.db, Config{Prefix: "a6_"}, AdoptConfig{Table: table})
			want(t, err)
			schemaErr(t, "plan of "+table, a.refusal(), c.words...)
		}
	}},
	{name: "what is no table to adopt is refused", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		_, err := PlanAdopt(t.Context(), b.db, Config{}, AdoptConfig{Table: "t_msg_consume"})
		schemaErr(t, "PlanAdopt of ours", err, "is txmq's already")
		_, err = PlanAdopt(t.Context(), b.db, Config{}, AdoptConfig{Table: "no_such"})
		schemaErr(t, "PlanAdopt of none", err, "does not exist")
		for _, c := range []AdoptConfig{{}, {Table: "a.b"}, {Table: strings.Repeat("x", 53)}, {Table: "x", Zone: "CET"}, {Table: "x", Chunk: -1}, {Table: "x", Map: map[string]Status{"a": "DONE"}}} {
			var field *txmq.FieldError
			if _, err := Adopt(t.Context(), b.db, Config{}, c); !errors.As(err, &field) {
				t.Errorf("Adopt(%+v) = %v, want a FieldError", c, err)
			}
		}
		b.theirs(t, "a7_old", wordsType, [2]any{"e", "SUCCESS"})
		exec(t, b.db, "CREATE TABLE a7_meta (id INT)")
		_, err = PlanAdopt(t.Context(), b.db, Config{Prefix: "a7_"}, AdoptConfig{Table: "a7_old"})
		schemaErr(t, "PlanAdopt where another table is foreign", err, "a7_meta")
		exec(t, b.db, "DROP TABLE a7_meta")
		exec(t, b.db, "CREATE TABLE a7_old_before_txmq (id INT)")
		_, err = PlanAdopt(t.Context(), b.db, Config{Prefix: "a7_"}, AdoptConfig{Table: "a7_old"})
		schemaErr(t, "PlanAdopt where the name to keep it under is taken", err, "a7_old_before_txmq", "rename one")
	}},
	{name: "a table of another name is copied beside what is there, unless both know an event", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		_, err := Migrate(t.Context(), b.db, Config{Prefix: "a8_"})
		want(t, err)
		s, err := Open(t.Context(), b.db, Config{Prefix: "a8_"})
		if err != nil {
			t.Fatal(err)
		}
		id := s.DatabaseID()
		want(t, s.Fail(t.Context(), Failure{Arrival: arrival("both"), Err: errNoStock}))
		b.theirs(t, "a8_old", wordsType, [2]any{"both", "SUCCESS"}, [2]any{"done", "SUCCESS"})
		_, err = Adopt(t.Context(), b.db, Config{Prefix: "a8_"}, AdoptConfig{Table: "a8_old"})
		schemaErr(t, "Adopt", err, "1 of its events stand in a8_msg_consume already")
		exec(t, b.db, "DELETE FROM a8_old WHERE event_id = 'both'")
		_, s = b.adopt(t, "a8_", AdoptConfig{Table: "a8_old"})
		decided(t, s, "done", Duplicate)
		decided(t, s, "both", Run)
		if s.DatabaseID() != id {
			t.Error("the database has got another ID")
		}
	}},
	{name: "other key types, charsets and engines", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		exec(t, b.db, `CREATE TABLE a9_old (event_id BIGINT, consumer ENUM('c1', 'c2'), status ENUM('CONSUMING', 'CONSUMED'), last_error VARCHAR(4000),
			created_at BIGINT, PRIMARY KEY (consumer, event_id)) ENGINE = MyISAM`)
		for i := range 7 {
			exec(t, b.db, "INSERT INTO a9_old VALUES (?, ?, 'CONSUMED', ?, 1700000000)", 9_000_000_000+i, []string{"c1", "c2"}[i%2], strings.Repeat("é", 3000))
		}
		a, s := b.adopt(t, "a9_", AdoptConfig{Table: "a9_old", Chunk: 2})
		if a.Engine != "MyISAM" || !slices.Contains(a.Consumers, AdoptedConsumer{Name: "c1", Rows: 4}) {
			t.Errorf("adoption = %+v", a)
		}
		r, err := s.Find(t.Context(), "9000000003", "c2")
		if err != nil || r.Status != Success || len([]rune(r.LastError)) != MaxErrorRunes {
			t.Errorf("Find = %+v, %v", r, err)
		}
		b.wantUntil(t, "created_at", r.CreatedAt, 0)
		exec(t, b.db, `CREATE TABLE a10_old (event_id VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY, consumer CHAR(9) CHARACTER SET gbk, status CHAR(9))`)
		for _, event := range []string{"café", "b", "a", "B2", "z"} {
			exec(t, b.db, "INSERT INTO a10_old VALUES (?, '订单', 'SUCCESS')", event)
		}
		_, s = b.adopt(t, "a10_", AdoptConfig{Table: "a10_old", Chunk: 2})
		if r, err := s.Find(t.Context(), "café", "订单"); err != nil || r.Status != Success {
			t.Errorf("Find = %+v, %v", r, err)
		}
	}},
	{name: "their times become UTC, and a wrong zone is seen", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		exec(t, b.db, "CREATE TABLE a11_old (id INT PRIMARY KEY, event_id VARCHAR(9), consumer VARCHAR(9), status VARCHAR(9), created_at DATETIME, updated_at DATETIME)")
		exec(t, b.db, "INSERT INTO a11_old VALUES (1, 'e', 'c', 'SUCCESS', '2026-01-02 03:04:05', UTC_TIMESTAMP() + INTERVAL 8 HOUR), (2, 'f', 'c', 'SUCCESS', NULL, NULL)")
		cfg := Config{Prefix: "a11_"}
		_, err := Adopt(t.Context(), b.db, cfg, AdoptConfig{Table: "a11_old"})
		schemaErr(t, "Adopt", err, "minutes from now, taken as +00:00", "--zone")
		_, s := b.adopt(t, "a11_", AdoptConfig{Table: "a11_old", Zone: "+08:00"})
		r, err := s.Find(t.Context(), "e", "c")
		want(t, err)
		if at := r.CreatedAt.UTC().Format(timeLayout); at != "2026-01-01 19:04:05.000" {
			t.Errorf("created at %s", at)
		}
		b.wantUntil(t, "updated_at", r.UpdatedAt, 0)
		r, err = s.Find(t.Context(), "f", "c")
		want(t, err)
		b.wantUntil(t, "a created_at that was NULL", r.CreatedAt, 0)
	}},
	{name: "cut off after any step, it goes on, and until then nobody can open the tables", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		steps := []string{"", "rename", "migrate", "half the copy", "copy"}
		for i, last := range steps[1:] {
			prefix := fmt.Sprintf("b%d_", i)
			table := prefix + "msg_consume"
			b.theirs(t, table, wordsType, words...)
			s, err := connect(t.Context(), "Adopt", b.db, Config{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.planAdopt(t.Context(), AdoptConfig{Table: table, Chunk: 2})
			want(t, err)
			want(t, s.keepForeign(t.Context(), a))
			if last != "rename" {
				want(t, s.makeOurs(t.Context(), a))
			}
			if strings.HasSuffix(last, "copy") {
				want(t, s.copyForeign(t.Context(), a))
			}
			if last == "half the copy" {
				exec(t, b.db, "DELETE FROM "+table+" WHERE event_id IN ('done', 'failed')")
			}
			_, err = Open(t.Context(), b.db, Config{Prefix: prefix})
			schemaErr(t, "Open after "+last, err)
			_, err = Migrate(t.Context(), b.db, Config{Prefix: prefix})
			schemaErr(t, "Migrate after "+last, err, "has begun and not ended", "migrate adopt --table "+table)
			_, err = PlanUp(t.Context(), b.db, Config{Prefix: prefix})
			schemaErr(t, "PlanUp after "+last, err, "has begun and not ended")
			if last != "rename" {
				_, err = PlanAdopt(t.Context(), b.db, Config{Prefix: prefix}, AdoptConfig{Table: "account"})
				schemaErr(t, "PlanAdopt of another after "+last, err, "the adoption of "+table)
			}
			a, opened := b.adopt(t, prefix, AdoptConfig{Table: table})
			if !a.Begun {
				t.Errorf("after %s: adoption = %+v, want it to have begun", last, a)
			}
			for event, want := range map[string]Decision{"done": Duplicate, "under way": Run, "failed": Run, "buried": Buried} {
				decided(t, opened, event, want)
			}
			if n := b.count(t, "SELECT COUNT(*) FROM "+table); n != 4 {
				t.Errorf("after %s: %d rows, want 4", last, n)
			}
		}
	}},
	{name: "a copy that differs is no success", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		for name, spoil := range map[string]string{
			"c0_": "DELETE FROM c0_msg_consume WHERE event_id = 'failed'",
			"c1_": "UPDATE c1_msg_consume SET status = 'SUCCESS' WHERE event_id = 'under way'",
			"c2_": "DELETE FROM c2_msg_consume_before_txmq WHERE event_id = 'failed'",
		} {
			b.theirs(t, name+"msg_consume", wordsType, words...)
			s, err := connect(t.Context(), "Adopt", b.db, Config{Prefix: name})
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.planAdopt(t.Context(), AdoptConfig{Table: name + "msg_consume"})
			want(t, err)
			want(t, s.keepForeign(t.Context(), a))
			want(t, s.makeOurs(t.Context(), a))
			want(t, s.copyForeign(t.Context(), a))
			want(t, s.verifyCopy(t.Context(), a))
			exec(t, b.db, spoil)
			wantErr(t, "verify after "+spoil, s.verifyCopy(t.Context(), a), errCopyDiffers)
		}
	}},
	{name: "a table in use is not renamed, and says so", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "d0_msg_consume", wordsType, words...)
		open := b.db.Begin()
		defer open.Rollback()
		exec(t, open, "UPDATE d0_msg_consume SET retry_cnt = 1 WHERE event_id = 'done'")
		start := time.Now()
		_, err := Adopt(t.Context(), b.db, Config{Prefix: "d0_"}, AdoptConfig{Table: "d0_msg_consume", wait: short})
		schemaErr(t, "Adopt", err, "in use", "stop the consumers")
		var stopped *AdoptError
		if !errors.As(err, &stopped) || stopped.Step != "rename" {
			t.Errorf("Adopt = %v, want an AdoptError of the rename", err)
		}
		if took := time.Since(start); took > minute {
			t.Errorf("it took %v", took)
		}
	}},
	{name: "ALTER makes it ours, and the columns read from the migrations are those of the table", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "e0_msg_consume", wordsType, words...)
		a, err := PlanAdopt(t.Context(), b.db, Config{Prefix: "e0_"}, AdoptConfig{Table: "e0_msg_consume"})
		want(t, err)
		if !strings.Contains(a.Alter, "DROP KEY idx_sweep,\n  ADD KEY idx_sweep (status, lease_until)") || strings.Contains(a.Alter, "uk_event_consumer") {
			t.Errorf("ALTER = %s", a.Alter)
		}
		exec(t, b.db, a.Alter)
		ours, theirs := b.columnsOf(t, "t_msg_consume"), b.columnsOf(t, "e0_msg_consume")
		for name, def := range ours {
			if strings.TrimSuffix(theirs[name], " auto_increment") != strings.TrimSuffix(def, " auto_increment") {
				t.Errorf("%s is %q after the ALTER, want %q", name, theirs[name], def)
			}
		}
		our, keys := ourDDL(b.s.d)
		if len(our) != len(ours) || len(keys) != 4 {
			t.Errorf("read %d columns and %d keys, the table has %d and 4", len(our), len(keys), len(ours))
		}
		_, err = PlanAdopt(t.Context(), b.db, Config{Prefix: "e0_"}, AdoptConfig{Table: "e0_msg_consume"})
		schemaErr(t, "PlanAdopt afterwards", err, "is txmq's already")
		// What is ours already is not told as a difference.
		exec(t, b.db, "CREATE TABLE e1_old LIKE t_msg_consume")
		a, err = PlanAdopt(t.Context(), b.db, Config{Prefix: "e1_"}, AdoptConfig{Table: "e1_old"})
		if err != nil || len(a.Changes) != 0 || strings.Contains(a.Alter, "MODIFY") || strings.Contains(a.Alter, "uk_event_consumer") {
			t.Errorf("changes = %+v, %s, %v, want none", a.Changes, a.Alter, err)
		}
	}},
	{name: "a plan changes nothing and tells all", needs: onePlainServer, run: func(t *testing.T, b *bundle) {
		b.theirs(t, "f0_msg_consume", wordsType, words...)
		before := b.schema2(t, "f0_msg_consume")
		a, err := PlanAdopt(t.Context(), b.db, Config{Prefix: "f0_"}, AdoptConfig{Table: "f0_msg_consume"})
		want(t, err)
		if b.schema2(t, "f0_msg_consume") != before || b.tablesLike(t, "f0_") != 1 {
			t.Error("the plan has changed something")
		}
		wantStates := []AdoptedState{
			{Old: "DEAD", Rows: 1, Means: Dead, Becomes: Dead},
			{Old: "FAIL", Rows: 1, Means: Fail, Becomes: Fail},
			{Old: "PROCESSING", Rows: 1, Means: Processing, Becomes: Fail},
			{Old: "SUCCESS", Rows: 1, Means: Success, Becomes: Success},
		}
		if diff := cmp.Diff(wantStates, a.States); diff != "" {
			t.Errorf("states:\n%s", diff)
		}
		if !slices.Contains(a.Changes, AdoptedColumn{Name: "event_id", Theirs: "VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL", Ours: "VARBINARY(255) NOT NULL"}) ||
			!slices.Contains(a.Changes, AdoptedColumn{Name: "payload_hash", Ours: "BINARY(32) NOT NULL"}) ||
			!slices.Contains(a.Changes, AdoptedColumn{Name: "remark", Theirs: "VARCHAR(20) COLLATE utf8mb4_general_ci"}) {
			t.Errorf("changes = %+v", a.Changes)
		}
		if len(a.Run) != 3 || !strings.HasPrefix(a.Run[0], "RENAME TABLE `f0_msg_consume` TO") || strings.Contains(a.Run[2], "?") || strings.Contains(a.Run[2], "{") {
			t.Errorf("run = %q", a.Run)
		}
		if !slices.Contains(a.Consumers, AdoptedConsumer{Name: handler, Rows: 4}) {
			t.Errorf("consumers = %+v", a.Consumers)
		}
	}},
	{name: "SQLite refuses, and says what to do", needs: func(h harness) bool { return !h.server }, run: func(t *testing.T, b *bundle) {
		_, err := Adopt(t.Context(), b.db, Config{}, AdoptConfig{Table: "old"})
		schemaErr(t, "Adopt", err, "MySQL and MariaDB", "by hand")
	}},
}

// schema2 is one table as the database tells it.
func (b *bundle) schema2(t *testing.T, table string) string {
	t.Helper()
	var name, ddl string
	want(t, b.s.pool.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &ddl))
	return ddl
}

// columns are a table's, each as the database tells it.
func (b *bundle) columnsOf(t *testing.T, table string) map[string]string {
	t.Helper()
	var list []struct{ Name, Def string }
	err := b.db.Raw(`SELECT column_name AS name, CONCAT_WS(' ', column_type, collation_name, is_nullable, column_default, extra) AS def
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?`, table).Scan(&list).Error
	want(t, err)
	all := map[string]string{}
	for _, c := range list {
		all[c.Name] = c.Def
	}
	return all
}
