package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
	"pgregory.net/rapid"

	"github.com/txmq/txmq/internal/dbclock"
)

func TestTime(t *testing.T) {
	t.Parallel()
	shanghai := time.FixedZone("CST", 8*3600)
	at := time.Date(2024, 2, 29, 23, 59, 59, 123e6, time.UTC)
	t.Run("B40 Scan takes the wall clock as UTC, whatever zone the driver put on it", func(t *testing.T) {
		for name, v := range map[string]any{
			"UTC": at, "Shanghai": time.Date(2024, 2, 29, 23, 59, 59, 123e6, shanghai),
			"text": "2024-02-29 23:59:59.123", "bytes": []byte("2024-02-29 23:59:59.123"),
		} {
			var got Time
			if err := got.Scan(v); err != nil || !got.Equal(at) || got.Location() != time.UTC {
				t.Errorf("Scan(%s) = %v, %v, want %v", name, got, err, at)
			}
		}
	})
	t.Run("Scan of NULL is zero, of anything else an error", func(t *testing.T) {
		got := Time{at}
		if err := got.Scan(nil); err != nil || !got.IsZero() {
			t.Errorf("Scan(nil) = %v, %v", got, err)
		}
		for _, v := range []any{int64(1), "yesterday", []byte("0000-00-00")} {
			if err := got.Scan(v); err == nil {
				t.Errorf("Scan(%v) = %v, want an error", v, got)
			}
		}
	})
	t.Run("Value is UTC text, and NULL for zero", func(t *testing.T) {
		for in, want := range map[Time]driver.Value{
			{at}: "2024-02-29 23:59:59.123", {at.In(shanghai)}: "2024-02-29 23:59:59.123", {}: nil,
		} {
			if got, err := in.Value(); err != nil || got != want {
				t.Errorf("Value(%v) = %v, %v, want %v", in, got, err, want)
			}
		}
	})
	t.Run("JSON is RFC 3339, and null for zero", func(t *testing.T) {
		for in, want := range map[Time]string{{at}: `"2024-02-29T23:59:59.123Z"`, {}: "null"} {
			if got, err := json.Marshal(in); err != nil || string(got) != want {
				t.Errorf("JSON = %s, %v, want %s", got, err, want)
			}
		}
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	if got := cut(nil); got != "" {
		t.Errorf("cut(nil) = %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "text"))
		got := cut(errors.New(text))
		if n := utf8.RuneCountInString(got); n > MaxErrorRunes || !utf8.ValidString(got) {
			t.Fatalf("cut gives %d characters, valid %v", n, utf8.ValidString(got))
		}
		if utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxErrorRunes && got != text {
			t.Fatalf("cut changed %q to %q", text, got)
		}
	})
}

// TestNoClockOfOurs: what this package decides by time, the database decides.
func TestNoClockOfOurs(t *testing.T) {
	t.Run("B42 no statement knows a service's clock", func(t *testing.T) {
		entries, err := os.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(sel.X) == "time" {
					if name := sel.Sel.Name; name == "Now" || name == "Since" || name == "Until" {
						t.Errorf("%s uses time.%s", e.Name(), name)
					}
				}
				return true
			})
		}
	})
}

func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	type told struct{ transient, deadlock, breaks bool }
	number := func(n uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: n}) }
	s := &Store{d: mysqlDialect()}
	for name, c := range map[string]struct {
		err  error
		want told
	}{
		"nil":               {nil, told{}},
		"deadlock":          {number(1213), told{true, true, true}},
		"snapshot too old":  {number(1020), told{true, true, true}},
		"lock wait":         {number(1205), told{true, false, true}},
		"nowait of MySQL":   {number(3572), told{true, false, false}},
		"savepoint is gone": {&mysql.MySQLError{Number: 1305, Message: "SAVEPOINT x does not exist"}, told{true, false, true}},
		"no such function":  {&mysql.MySQLError{Number: 1305, Message: "FUNCTION d.nw does not exist"}, told{}},
		"killed":            {number(1317), told{true, false, true}},
		"duplicate key":     {number(1062), told{}},
		"syntax":            {number(1064), told{}},
		"too long":          {number(1406), told{}},
		"bad connection":    {driver.ErrBadConn, told{true, false, true}},
		"invalid conn":      {mysql.ErrInvalidConn, told{true, false, true}},
		"conn done":         {sql.ErrConnDone, told{true, false, true}},
		"tx done":           {sql.ErrTxDone, told{true, false, true}},
		"cancelled":         {fmt.Errorf("x: %w", context.Canceled), told{true, false, true}},
		"deadline":          {context.DeadlineExceeded, told{true, false, true}},
		"network":           {&net.OpError{Op: "read", Err: errors.New("reset")}, told{true, false, true}},
		"anything":          {errNoStock, told{}},
		"no rows":           {sql.ErrNoRows, told{}},
	} {
		got := told{s.Transient(c.err), s.Deadlock(c.err), c.err != nil && s.d.breaks(c.err)}
		if got != c.want {
			t.Errorf("%s = %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{-time.Second: 1, 0: 1, time.Millisecond: 1, time.Second: 1, 1001 * time.Millisecond: 2, time.Minute: 60} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("wholeSeconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// TestAlone: a deadlock of a one-statement transaction is nobody's business.
func TestAlone(t *testing.T) {
	t.Parallel()
	s := &Store{d: mysqlDialect()}
	deadlock := &mysql.MySQLError{Number: erDeadlock}
	runs := 0
	err := s.alone(func() error {
		if runs++; runs < deadlockTries {
			return deadlock
		}
		return nil
	})
	if err != nil || runs != deadlockTries {
		t.Errorf("alone = %v after %d runs, want nil after %d", err, runs, deadlockTries)
	}
	runs = 0
	if err := s.alone(func() error { runs++; return errNoStock }); err == nil || runs != 1 {
		t.Errorf("alone = %v after %d runs, want the error after 1", err, runs)
	}
	if err := s.alone(func() error { return deadlock }); !errors.Is(err, deadlock) {
		t.Errorf("alone = %v, want the deadlock in the end", err)
	}
}

func TestStatementText(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect{mysqlDialect(), sqliteDialect()} {
		for _, offset := range []time.Duration{0, time.Hour, -time.Hour} {
			clock := &dbclock.Offset{}
			clock.Add(offset)
			s := &Store{d: d, prefix: "p_", clock: clock, texts: newTexts()}
			text := s.q("UPDATE {prefix}x SET a = {now}, b = {now+?} WHERE c = ? AND {rest} > 0 AND d = {random}")
			if strings.ContainsAny(text, "{}") || strings.Count(text, "?") != 2 || !strings.Contains(text, "p_x") {
				t.Errorf("%s at %v: %s", d.name, offset, text)
			}
		}
	}
}
