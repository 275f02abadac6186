package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq/internal/testenv"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const canary = "cAnArY-7f3"

// clean checks that neither stream has the password.
func (r result) clean(t *testing.T) {
	t.Helper()
	if strings.Contains(r.stdout+r.stderr, canary) {
		t.Errorf("the password is printed:\n%s%s", r.stdout, r.stderr)
	}
}

func TestNoPasswordInOutput(t *testing.T) {
	good := "mysql://u:" + canary + "@tcp(127.0.0.1:1)/d"
	dsns := map[string]string{
		"a port that nobody listens on":  good,
		"the raw form":                   strings.TrimPrefix(good, "mysql://"),
		"a host that is none":            "u:" + canary + "@tcp(host.invalid:1)/d",
		"no @":                           "u:" + canary + "/d",
		"no @ before the address":        "u:" + canary + "(127.0.0.1:1)/d",
		"a space for the @":              "u:" + canary + " tcp(127.0.0.1:1)/d",
		"a network that is the password": "u@" + canary + "(127.0.0.1:1)/d",
		"no database":                    "u:" + canary + "@tcp(127.0.0.1:1)",
		"the form of a URL":              "mysql://u:" + canary + "@127.0.0.1:3306/d",
		"no closing bracket":             "u:" + canary + "@tcp(127.0.0.1:1/d",
		"a slash in the password":        "u:a/" + canary + "@127.0.0.1/d",
		"a slash, and no database":       "u:a/" + canary + "@tcp(127.0.0.1:1)",
		"a bad parameter":                "u:p@tcp(127.0.0.1:1)/d?parseTime=" + canary,
		"a bad duration":                 "u:p@tcp(127.0.0.1:1)/d?timeout=" + canary,
		"an unknown TLS config":          "u:p@tcp(127.0.0.1:1)/d?tls=" + canary,
		"an unknown public key":          "u:p@tcp(127.0.0.1:1)/d?serverPubKey=" + canary,
		"an unknown zone":                "u:p@tcp(127.0.0.1:1)/d?loc=" + canary,
		"a parameter that panics":        "u:" + canary + "@tcp(127.0.0.1:1)/d?strict=true",
		"a bad escape":                   "u:p@tcp(127.0.0.1:1)/%zz" + canary,
		"another database's URL":         "postgres://u:" + canary + "@127.0.0.1/d",
		"a scheme that is the password":  canary + "://u@h/d",
	}
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			for _, words := range [][]string{{"records", "list"}, {"migrate", "up"}, {"serve", "--listen=127.0.0.1:0"}} {
				r := command(t, "", append(words, "--connect-timeout=300ms", "--dsn", dsn)...)
				r.clean(t)
				if r.code == exitOK {
					t.Errorf("%v: exit code 0, want an error", words)
				}
				r.hinted(t, r.code)
				if got := command(t, dsn, append(words, "--connect-timeout=300ms", "--dsn-file=-")...); got != r {
					got.clean(t)
					got.hinted(t, r.code)
				}
			}
		})
	}
	for name, args := range map[string][]string{
		"as an argument":         {"records", "list", good},
		"as a command":           {good, "migrate", "up"},
		"of a mistyped flag":     {"records", "list", "--dns=" + good},
		"of a one-letter flag":   {"records", "list", "-dsn=" + good},
		"as a file's name":       {"records", "list", "--dsn-file=" + good},
		"as an output":           {"records", "list", "--output=" + good},
		"as a status":            {"records", "list", "--status", good, "--dsn=sqlite://x"},
		"as a number":            {"records", "list", "--limit", good},
		"as a duration":          {"records", "list", "--older=" + good},
		"as an address":          {"serve", "--listen=" + good, "--dsn=" + fileDSN(t)},
		"as a prefix":            {"migrate", "print", "--prefix=" + good},
		"beside another mistake": {"--dsn=" + good, "recrods", "list"},
	} {
		t.Run("a DSN "+name, func(t *testing.T) {
			r := command(t, "", args...)
			r.clean(t)
			if r.code == exitOK {
				t.Error("exit code 0, want an error")
			}
			r.hinted(t, r.code)
		})
	}
	t.Run("help with a DSN in the environment", func(t *testing.T) {
		t.Setenv("TXMQ_DSN", good)
		r := run(t.Context(), "", "records", "list", "--help")
		r.clean(t)
		if r.code != exitOK || !strings.Contains(r.stdout, "TXMQ_DSN") {
			t.Errorf("exit code %d, stdout %s", r.code, r.stdout)
		}
	})
	t.Run("MariaDB refuses the password", func(t *testing.T) {
		cfg, err := mysql.ParseDSN(testenv.MySQL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Passwd = canary
		r := command(t, "", "records", "list", "--dsn", "mysql://"+cfg.FormatDSN())
		r.clean(t)
		r.hinted(t, exitFailure)
		if !strings.Contains(r.stderr, "Access denied") || !strings.Contains(r.stderr, mysqlHints[1045]) {
			t.Errorf("stderr: %s", r.stderr)
		}
	})
	t.Run("MariaDB knows no such database", func(t *testing.T) {
		cfg, err := mysql.ParseDSN(testenv.MySQL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.DBName = "txmq_no_such"
		r := command(t, "", "migrate", "up", "--dsn", cfg.FormatDSN())
		r.hinted(t, exitFailure)
		if strings.Contains(r.stderr, cfg.Passwd+"@") || !strings.Contains(r.stderr, "txmq_no_such") ||
			!strings.Contains(r.stderr, mysqlHints[1049]) {
			t.Errorf("stderr: %s", r.stderr)
		}
	})
}
