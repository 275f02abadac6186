package main

import (
	"bytes"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq/internal/testenv"
)

// play runs a small demo on the real services and gives its exit code and its
// last lines.
func play(t *testing.T, args ...string) (code int, last []string, stderr string) {
	t.Helper()
	nameServer := testenv.NameServer(t)
	dsn := testenv.MySQL(t)
	own, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"demo", "--dsn", dsn, "--namesrv", nameServer, "--database", own.DBName,
		"--orders", "60", "--min-committed", "40", "--scenes", "1",
	}, args...)
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	t.Logf("orders %s\n%s%s", strings.Join(args, " "), &out, &errs)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return code, lines[max(0, len(lines)-3):], errs.String()
}

// counts reads a line of name=number.
func counts(t *testing.T, line string) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, word := range strings.Fields(line) {
		name, number, _ := strings.Cut(word, "=")
		var n int
		if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
			t.Fatalf("%q in %q: %v", word, line, err)
		}
		got[name] = n
	}
	return got
}

var tallyLine = regexp.MustCompile(
	`^committed=\d+ rolled_back=\d+ delivered=\d+ effects=\d+ lost=\d+ double=\d+ phantom=\d+$`)

func TestDemo(t *testing.T) {
	t.Run("every promise holds", func(t *testing.T) {
		code, last, stderr := play(t)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		naive, isNaive := strings.CutPrefix(last[0], "naive ")
		if !isNaive || !tallyLine.MatchString(naive) {
			t.Errorf("the line before the last two is %q", last[0])
		}
		for name, n := range counts(t, last[1]) {
			if n == 0 {
				t.Errorf("%s=0 in %q, want more", name, last[1])
			}
		}
		if !tallyLine.MatchString(last[2]) {
			t.Fatalf("the last line is %q", last[2])
		}
		got := counts(t, last[2])
		if got["committed"] < 40 || got["rolled_back"] == 0 || got["effects"] != got["committed"] || got["delivered"] != got["committed"] {
			t.Errorf("%q does not add up", last[2])
		}
	})
	t.Run("without deduplication double effects show", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir()) // for the logs, which a run that is not good keeps
		code, last, stderr := play(t, "--without-dedup")
		if code != 1 || !strings.Contains(stderr, "(double)") {
			t.Errorf("exit %d, want 1 for double effects: %s", code, stderr)
		}
		if got := counts(t, last[2]); got["double"] == 0 || got["lost"] != 0 {
			t.Errorf("%q, want double above 0 and nothing lost", last[2])
		}
	})
}

func TestServicesDown(t *testing.T) {
	nobody := nobody(t)
	t.Run("no database", func(t *testing.T) {
		wantHint(t, 1, "demo", "--dsn", "u:secret@tcp("+nobody+")/d?parseTime=true", "--namesrv", nobody)
	})
	t.Run("no broker", func(t *testing.T) {
		dsn := testenv.MySQL(t)
		own, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		wantHint(t, 1, "demo", "--dsn", dsn, "--namesrv", nobody, "--database", own.DBName)
	})
	t.Run("wrong command line", func(t *testing.T) { wantHint(t, 2, "demo", "--no-such-flag") })
	t.Run("no command", func(t *testing.T) { wantHint(t, 2) })
}

// nobody is an address that nobody listens on.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

func wantHint(t *testing.T, want int, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, &out, &errs); code != want {
		t.Errorf("exit %d, want %d: %s", code, want, &errs)
	}
	if !strings.Contains(errs.String(), "hint: ") || strings.Contains(errs.String(), "secret") {
		t.Errorf("stderr is %q, want a hint and no password", &errs)
	}
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "demo") {
		t.Errorf("exit %d, help is %q %q", code, &out, &errs)
	}
}
