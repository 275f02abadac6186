package txguard

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestForbidden(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		// Work.
		"":                                 "",
		";;":                               "",
		"SELECT 1":                         "",
		"select * from commit_log":         "",
		"INSERT INTO t VALUES (1)":         "",
		"UPDATE t SET `commit` = 1":        "",
		`UPDATE t SET "drop" = 1`:          "",
		"DELETE FROM t":                    "",
		"REPLACE INTO t VALUES (1)":        "",
		"WITH x AS (SELECT 1) SELECT":      "",
		"VALUES (1)":                       "",
		"EXPLAIN SELECT 1":                 "",
		"SHOW TABLES":                      "",
		"DO 1":                             "",
		"SAVEPOINT a":                      "",
		"ROLLBACK TO a":                    "",
		"ROLLBACK TO SAVEPOINT a":          "",
		"ROLLBACK WORK TO a":               "",
		"rollback transaction to a":        "",
		"RELEASE SAVEPOINT a":              "",
		"CREATE TEMPORARY TABLE x (i INT)": "",
		"CREATE TEMP TABLE x (i INT)":      "",
		"DROP TEMPORARY TABLE x":           "",
		"SET @x = 1":                       "",
		"SET SESSION sql_mode = ''":        "",
		"SET @x = 'autocommit'":            "",
		"SET STATEMENT max_statement_time=1 FOR SELECT 1":      "",
		"INSERT INTO t VALUES ('; COMMIT')":                    "",
		"INSERT INTO t VALUES ('a''; COMMIT; --')":             "",
		"INSERT INTO t VALUES (`; COMMIT`)":                    "",
		"SELECT 1 -- ; COMMIT":                                 "",
		"SELECT 1 # ; COMMIT":                                  "",
		"SELECT 1 /* ; COMMIT */":                              "",
		"SELECT /*+ MAX_EXECUTION_TIME(1) */ 1":                "",
		"/* hello */ SELECT 1":                                 "",
		"SELECT IF(1, 2, 3)":                                   "",
		"SELECT CASE WHEN 1 THEN 2 END":                        "",
		"INSERT INTO t SELECT 1 ON DUPLICATE KEY UPDATE a = 1": "",
		// Ends.
		"COMMIT":                            "COMMIT",
		"commit":                            "COMMIT",
		" \t\n(COMMIT)":                     "COMMIT",
		"COMMIT AND CHAIN":                  "COMMIT",
		"ROLLBACK":                          "ROLLBACK",
		"ROLLBACK WORK":                     "ROLLBACK",
		"ROLLBACK AND CHAIN":                "ROLLBACK",
		"BEGIN":                             "BEGIN",
		"BEGIN IMMEDIATE":                   "BEGIN",
		"START TRANSACTION":                 "START",
		"END":                               "END",
		"ABORT":                             "ABORT",
		"XA START 'x'":                      "XA",
		"CREATE TABLE x (i INT)":            "CREATE",
		"CREATE OR REPLACE TABLE x (i INT)": "CREATE",
		"CREATE INDEX i ON t (a)":           "CREATE",
		"ALTER TABLE t ADD b INT":           "ALTER",
		"DROP TABLE t":                      "DROP",
		"TRUNCATE t":                        "TRUNCATE",
		"TRUNCATE TABLE t":                  "TRUNCATE",
		"RENAME TABLE a TO b":               "RENAME",
		"LOCK TABLES t WRITE":               "LOCK",
		"UNLOCK TABLES":                     "UNLOCK",
		"GRANT ALL ON *.* TO x":             "GRANT",
		"ANALYZE TABLE t":                   "ANALYZE",
		"OPTIMIZE TABLE t":                  "OPTIMIZE",
		"FLUSH TABLES":                      "FLUSH",
		"CALL p()":                          "CALL",
		"PREPARE s FROM 'COMMIT'":           "PREPARE",
		"EXECUTE IMMEDIATE 'COMMIT'":        "EXECUTE",
		"PRAGMA foreign_keys = 0":           "PRAGMA",
		"VACUUM":                            "VACUUM",
		"LOAD INDEX INTO CACHE t":           "LOAD INDEX",
		"SET autocommit = 1":                "SET AUTOCOMMIT",
		"SET @@autocommit=1":                "SET AUTOCOMMIT",
		"SET SESSION autocommit = ON":       "SET AUTOCOMMIT",
		"SET @x = 1, autocommit = 1":        "SET AUTOCOMMIT",
		"SET TRANSACTION READ ONLY":         "SET TRANSACTION",
		"SET PASSWORD = 'x'":                "SET PASSWORD",
		// Hidden.
		"-- hello\nCOMMIT":             "COMMIT",
		"# hello\nCOMMIT":              "COMMIT",
		"/* hello */COMMIT":            "COMMIT",
		"/*/ x */ COMMIT":              "COMMIT",
		"; COMMIT":                     "COMMIT",
		"SELECT 1; COMMIT":             "COMMIT",
		"UPDATE t SET a = ';'; COMMIT": "COMMIT",
		"INSERT INTO t VALUES ('a'';'); DROP TABLE t":       "DROP",
		`INSERT INTO t VALUES ('\\'); DROP TABLE t`:         "DROP",
		"SELECT 1; SELECT 2; TRUNCATE t":                    "TRUNCATE",
		"/*! COMMIT */":                                     "an executable comment",
		"/*!50000 COMMIT */":                                "an executable comment",
		"/*M! COMMIT */":                                    "an executable comment",
		"/*M!100000 COMMIT */":                              "an executable comment",
		"SELECT 1 /*! ; COMMIT */":                          "an executable comment",
		"SET STATEMENT max_statement_time=1 FOR TRUNCATE t": "TRUNCATE",
		"SET STATEMENT a=1, b=2 FOR COMMIT":                 "COMMIT",
		"SELECT 5--1; COMMIT":                               "COMMIT", // no comment: MySQL wants a space after --
		"SELECT 5--":                                        "",
		// Compound statements of MariaDB.
		"BEGIN NOT ATOMIC COMMIT; END":        "BEGIN",
		"IF 1 THEN COMMIT; END IF":            "IF",
		"CASE 1 WHEN 1 THEN COMMIT; END CASE": "CASE",
		"WHILE 1 DO COMMIT; END WHILE":        "WHILE",
		"FOR i IN 1..2 DO COMMIT; END FOR":    "FOR",
		"LOOP COMMIT; END LOOP":               "LOOP",
		"REPEAT COMMIT; UNTIL 1 END REPEAT":   "REPEAT",
		"a: LOOP COMMIT; LEAVE a; END LOOP":   "END",
	} {
		if got := (Rules{Backslash: true}).forbidden(query); got != want {
			t.Errorf("forbidden(%q) = %q, want %q", query, got, want)
		}
	}
}

// TestBackslash: whether one escapes decides where a string ends.
func TestBackslash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, escapes, plain string }{
		{`INSERT INTO t VALUES ('\'; COMMIT; --')`, "", "COMMIT"},
		{`INSERT INTO t VALUES ('\''); COMMIT`, "COMMIT", ""},
		{`INSERT INTO t VALUES ('C:\'); DROP TABLE t`, "", "DROP"},
	} {
		if got := (Rules{Backslash: true}).forbidden(c.query); got != c.escapes {
			t.Errorf("with escapes: forbidden(%q) = %q, want %q", c.query, got, c.escapes)
		}
		if got := (Rules{}).forbidden(c.query); got != c.plain {
			t.Errorf("without: forbidden(%q) = %q, want %q", c.query, got, c.plain)
		}
	}
}

func TestMayBreakMidway(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		"SELECT * FROM t":                       false,
		"select 'for update' from t":            false,
		"SELECT * FROM t FOR UPDATE":            true,
		"SELECT * FROM t FOR SHARE":             true,
		"SELECT * FROM t LOCK IN SHARE MODE":    true,
		"SELECT a INTO @x FROM t":               true,
		"WITH x AS (SELECT 1) SELECT * FROM x":  false,
		"WITH x AS (SELECT 1) DELETE FROM t":    true,
		"INSERT INTO t VALUES (1) RETURNING id": true,
		"DELETE FROM t RETURNING id":            true,
		"SHOW TABLES":                           false,
		"CALL p()":                              true,
		"":                                      true,
	} {
		if got := mayBreakMidway(query, true); got != want {
			t.Errorf("mayBreakMidway(%q) = %v, want %v", query, got, want)
		}
	}
}

func TestIsSavepoint(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		"SAVEPOINT sp1": true, "savepoint sp1": true, "ROLLBACK TO SAVEPOINT sp1": true, "RELEASE SAVEPOINT sp1": true,
		"SELECT 1": false, "": false, "INSERT INTO savepoint VALUES (1)": false,
	} {
		if got := isSavepoint(query, true); got != want {
			t.Errorf("isSavepoint(%q) = %v, want %v", query, got, want)
		}
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	words, rest := scan(nil, "select a, `b c`, \"d\" /* e */ from t where f='g;h' -- i\n and j=1 ; k", true, math.MaxInt)
	if diff := cmp.Diff([]string{"select", "a", "from", "t", "where", "f", "and", "j", "1"}, words); diff != "" || rest != " k" {
		t.Errorf("rest %q, words (-want +got):\n%s", rest, diff)
	}
}

// TestScanCostsNothing: it is run for each statement of each function.
func TestScanCostsNothing(t *testing.T) {
	const query = "INSERT INTO ledger (account, amount) SELECT id, 'a; b' FROM accounts WHERE x IN (1, 2, 3) ON DUPLICATE KEY UPDATE amount = 1"
	n := testing.AllocsPerRun(100, func() {
		_ = (Rules{Backslash: true}).forbidden(query)
		_, _ = isSavepoint(query, true), mayBreakMidway(query, true)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func FuzzForbidden(f *testing.F) {
	for _, seed := range []string{
		"", ";", "'", `'\`, "/*", "/*!", "--", "-", "#", "`a``b`", "COMMIT", "SELECT 1; COMMIT", "SET STATEMENT a=1 FOR SET STATEMENT b=1 FOR COMMIT",
		"\xff\xfe", "ſet autocommit", "-- \n--\n;;", `"\"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, escapes := range []bool{true, false} {
			// scan ends: it always eats something.
			for rest := query; rest != ""; {
				_, next := scan(nil, rest, escapes, math.MaxInt)
				if len(next) >= len(rest) || !strings.HasSuffix(rest, next) {
					t.Fatalf("scan(%q) leaves %q", rest, next)
				}
				rest = next
			}
			r := Rules{Backslash: escapes}
			kind := r.forbidden(query)
			_, _ = isSavepoint(query, escapes), mayBreakMidway(query, escapes)
			// What stands behind a whole statement does not hide it.
			if kind != "" && r.forbidden(query+"\n") == "" {
				t.Fatalf("forbidden(%q) = %q, but not with a line's end", query, kind)
			}
			// Nor does what stands before.
			for _, before := range []string{" ", ";", "/* x */", "-- x\n", "SELECT 1;"} {
				if got := r.forbidden(before + query); kind != "" && got == "" {
					t.Fatalf("forbidden(%q) = %q, but %q with %q before", query, kind, got, before)
				}
			}
		}
	})
}
