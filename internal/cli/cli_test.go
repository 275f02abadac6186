package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// result is what one call of the command left.
type result struct {
	code           int
	stdout, stderr string
}

// command calls the command in this process, with no DSN in the environment.
func command(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	t.Setenv("TXMQ_DSN", "")
	return run(t.Context(), stdin, args...)
}

func run(ctx context.Context, stdin string, args ...string) result {
	var out, err bytes.Buffer
	code := Run(ctx, args, strings.NewReader(stdin), &out, &err)
	return result{code, out.String(), err.String()}
}

// hinted checks what each error has to look like.
func (r result) hinted(t *testing.T, code int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	hint, ok := strings.CutPrefix(lines[len(lines)-1], "hint: ")
	if r.code != code || !ok || hint == "" || !strings.HasPrefix(r.stderr, "txmq: ") {
		t.Errorf("exit code %d, want %d; stderr wants \"txmq: ...\" and a last line \"hint: ...\":\n%s", r.code, code, r.stderr)
	}
}

func fileDSN(t *testing.T) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "txmq.db")
}

// hole is a server that accepts connections and says nothing.
func hole(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestUnreachable(t *testing.T) {
	commands := [][]string{
		{"migrate", "up"},
		{"migrate", "status"},
		{"migrate", "down", "--yes"},
		{"migrate", "adopt", "--table=x"},
		{"records", "list"},
		{"records", "show", "e"},
		{"serve", "--listen=127.0.0.1:0"},
	}
	for _, words := range commands {
		t.Run(strings.Join(words, " ")+" gives up on a server that says nothing", func(t *testing.T) {
			start := time.Now()
			r := command(t, "", append(words, "--connect-timeout=200ms", "--dsn=u:p@tcp("+hole(t)+")/d")...)
			r.hinted(t, exitFailure)
			if took := time.Since(start); took > 10*time.Second || !strings.Contains(r.stderr, "no answer within 200ms") {
				t.Errorf("after %v: %s", took, r.stderr)
			}
		})
		t.Run(strings.Join(words, " ")+" with a port that nobody listens on", func(t *testing.T) {
			r := command(t, "", append(words, "--dsn=u:p@tcp(127.0.0.1:1)/d")...)
			r.hinted(t, exitFailure)
			if !strings.Contains(r.stderr, "127.0.0.1:1") || !strings.Contains(r.stderr, hintReach) {
				t.Errorf("stderr does not say where to look: %s", r.stderr)
			}
		})
	}
	t.Run("an interrupt is no time-out", func(t *testing.T) {
		t.Setenv("TXMQ_DSN", "u:p@tcp("+hole(t)+")/d")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := run(ctx, "", "records", "list")
		r.hinted(t, exitFailure)
		if !strings.Contains(r.stderr, "interrupted") {
			t.Errorf("stderr: %s", r.stderr)
		}
	})
	t.Run("a duration that is none", func(t *testing.T) {
		command(t, "", "records", "list", "--dsn=u:p@tcp(h)/d", "--connect-timeout=0s").hinted(t, exitUsage)
	})
}

func TestDSNPrecedence(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return "sqlite://" + filepath.Join(dir, name) }
	file := filepath.Join(dir, "dsn")
	write(t, file, "  "+at("file")+"\nsecond line\n")

	for _, c := range []struct {
		name, env, stdin string
		args             []string
		want             string
	}{
		{name: "flag before environment and file", env: at("env"), args: []string{"--dsn=" + at("flag"), "--dsn-file=" + file}, want: "flag"},
		{name: "environment before file", env: at("env"), args: []string{"--dsn-file=" + file}, want: "env"},
		{name: "file", args: []string{"--dsn-file=" + file}, want: "file"},
		{name: "file from the standard input", stdin: at("stdin"), args: []string{"--dsn-file=-"}, want: "stdin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TXMQ_DSN", c.env)
			r := run(t.Context(), c.stdin, append(c.args, "records", "list")...)
			r.hinted(t, exitFailure) // no such file
			if !strings.Contains(r.stderr, filepath.Join(dir, c.want)+":") {
				t.Errorf("want the database %s: %s", c.want, r.stderr)
			}
		})
	}
	for name, args := range map[string][]string{
		"none":               nil,
		"an empty file":      {"--dsn-file=-"},
		"no such file":       {"--dsn-file=" + filepath.Join(dir, "none")},
		"a folder":           {"--dsn-file=" + dir},
		"an unknown scheme":  {"--dsn=oracle://h/d"},
		"PostgreSQL":         {"--dsn=postgres://h/d"},
		"SQLite, no file":    {"--dsn=sqlite://"},
		"no database's name": {"--dsn=u:p@tcp(h:1)/"},
		"a bad prefix":       {"--dsn=" + at("x"), "--prefix=a-b"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if r := command(t, "", append(args, "migrate", "up")...); r.code == exitOK {
				t.Errorf("exit code 0, want an error; stdout %q", r.stdout)
			} else {
				r.hinted(t, r.code)
			}
		})
	}
}

func TestParseDSN(t *testing.T) {
	for _, dsn := range []string{
		"mysql://u:p@tcp(h:1)/d", "u:p@tcp(h:1)/d", "u:p@tcp(h:1)/d?parseTime=false&loc=Asia%2FShanghai", "MariaDB://u:p@tcp(h:1)/d",
	} {
		s, err := parseDSN(txmq.Secret(dsn))
		if err != nil || s.mysql == nil || s.mysql.Addr != "h:1" || s.mysql.DBName != "d" || s.mysql.Passwd != "p" {
			t.Fatalf("parseDSN(%s) = %+v, %v", dsn, s, err)
		}
		if !s.mysql.ParseTime || s.mysql.Loc != time.UTC {
			t.Errorf("parseDSN(%s): parseTime %v, loc %v; want true, UTC", dsn, s.mysql.ParseTime, s.mysql.Loc)
		}
	}
	for dsn, want := range map[string]string{
		"sqlite:///a/b.db":                 "file:/a/b.db?mode=rw&_pragma=busy_timeout(5000)&_txlock=immediate",
		"sqlite://b c?.db":                 "file:b%20c?mode=rw&_pragma=busy_timeout(5000)&_txlock=immediate&.db",
		"sqlite://x.db?_pragma=foo(1)&a=b": "file:x.db?mode=rw&_pragma=busy_timeout(5000)&_txlock=immediate&_pragma=foo(1)&a=b",
	} {
		s, err := parseDSN(txmq.Secret(dsn))
		if err != nil || s.sqliteDSN(false) != want {
			t.Errorf("parseDSN(%s) = %s, %v; want %s", dsn, s.sqliteDSN(false), err, want)
		}
	}
}

// The hints of what a server says.
func TestHints(t *testing.T) {
	for number, want := range map[uint16]string{1045: "password", 1049: "create the database", 1142: "grant"} {
		var errs bytes.Buffer
		code := report(&errs, &mysql.MySQLError{Number: number, Message: "no"}, nil)
		if code != exitFailure || !strings.Contains(errs.String(), want) {
			t.Errorf("error %d: code %d, %s", number, code, errs.String())
		}
	}
	var errs bytes.Buffer
	report(&errs, errors.New("odd"), nil)
	result{exitFailure, "", errs.String()}.hinted(t, exitFailure)
}
