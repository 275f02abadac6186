package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq"
)

// source is a parsed DSN: one of the two is set.
type source struct {
	mysql  *mysql.Config
	sqlite string // path
	params string // of SQLite's
}

const hintDSN = "want mysql://user:password@tcp(host:port)/database or sqlite:///path; see `txmq --help`"

// dsnSetting is the setting that names the database: dsn before dsn-file, but
// neither of the configuration file's before one that is nearer.
func (a *app) dsnSetting() string {
	far := a.from("dsn") == fromFile && a.from("dsn-file") > fromFile
	switch {
	case a.root.DSN != "" && (!far || a.root.DSNFile == ""):
		return "dsn"
	case a.root.DSNFile != "":
		return "dsn-file"
	default:
		return ""
	}
}

func (a *app) dsn() (txmq.Secret, error) {
	switch a.dsnSetting() {
	case "":
		return "", usage("give --dsn, $TXMQ_DSN or --dsn-file", "no database is named")
	case "dsn":
		return a.root.DSN, nil
	}
	text, err := a.firstLine(a.root.DSNFile)
	if err != nil {
		return "", failed(fmt.Errorf("%s: %w", a.called("dsn-file"), err), "check the path and its permissions")
	}
	if text == "" {
		return "", usage("its first line has to be the DSN", "%s %s is empty", a.called("dsn-file"), a.root.DSNFile)
	}
	return txmq.Secret(text), nil
}

func (a *app) firstLine(path string) (string, error) {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the user names it
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

var schemeRule = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*)://`)

// parseDSN reads a DSN. Its errors hold nothing of it but a scheme's name: where
// a character is missing, the parser takes the password for something else, and
// quotes it.
func parseDSN(dsn txmq.Secret) (source, error) {
	text := string(dsn)
	m := schemeRule.FindStringSubmatch(text)
	if m == nil {
		return parseMySQL(text)
	}
	rest := text[len(m[0]):]
	switch scheme := strings.ToLower(m[1]); scheme {
	case "mysql", "mariadb":
		return parseMySQL(rest)
	case "sqlite":
		path, params, _ := strings.Cut(rest, "?")
		if path == "" {
			return source{}, usage(hintDSN, "the DSN of SQLite names no file")
		}
		return source{sqlite: path, params: params}, nil
	case "postgres", "postgresql":
		return source{}, usage(hintDSN, "PostgreSQL is not supported yet")
	default:
		return source{}, usage(hintDSN, "the DSN's scheme is none of mysql, mariadb, sqlite")
	}
}

func parseMySQL(text string) (s source, err error) {
	defer func() {
		if recover() != nil { // the driver panics on the parameter "strict"
			err = usage(hintDSN, "the DSN can't be parsed")
		}
	}()
	cfg, parseErr := mysql.ParseDSN(text)
	switch {
	case parseErr != nil && strings.HasPrefix(parseErr.Error(), "invalid DSN: "): // those are constant
		return source{}, usage(hintDSN, "%w", parseErr)
	case parseErr != nil:
		return source{}, usage(hintDSN, "the DSN can't be parsed")
	case !slices.Contains([]string{"tcp", "tcp4", "tcp6", "unix"}, cfg.Net):
		return source{}, usage(hintDSN, "the DSN's network is none of tcp, tcp4, tcp6, unix")
	case cfg.DBName == "":
		return source{}, usage(hintDSN, "the DSN names no database")
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.Logger = &mysql.NopLogger{} // its errors come back to us
	return source{mysql: cfg}, nil
}

// file is what SQLite's driver gets. It keeps a file from being made where one
// is expected: by a mistyped path there would be an empty database, which says
// something else is wrong.
func (s source) file(absent missing) (string, error) {
	_, err := os.Stat(s.sqlite)
	gone := errors.Is(err, fs.ErrNotExist)
	if _, folder := os.Stat(filepath.Dir(s.sqlite)); gone && folder == nil && absent == imagine {
		return "file::memory:", nil
	}
	if err != nil && (!gone || absent != create) {
		return "", failed(fmt.Errorf("%v: %w", s, errors.Unwrap(err)), "check the path; only `txmq migrate up` makes the file")
	}
	return s.sqliteDSN(absent == create), nil
}

// sqliteDSN names the file with our parameters before the user's.
func (s source) sqliteDSN(create bool) string {
	mode := "rw"
	if create {
		mode = "rwc"
	}
	params := []string{"mode=" + mode, "_pragma=busy_timeout(5000)", "_txlock=immediate"}
	if s.params != "" {
		params = append(params, s.params)
	}
	return "file:" + (&url.URL{Path: s.sqlite}).EscapedPath() + "?" + strings.Join(params, "&")
}

// shown is the DSN as it is used, without its password, and without SQLite's
// parameters: who knows what an engine is told by them.
func (s source) shown() string {
	if s.mysql == nil {
		return "sqlite://" + s.sqlite
	}
	cfg := s.mysql.Clone()
	if cfg.Passwd != "" {
		cfg.Passwd = txmq.Secret(cfg.Passwd).String()
	}
	return "mysql://" + cfg.FormatDSN()
}

// String says where the database is, for people; never how to get in.
func (s source) String() string {
	if s.mysql != nil {
		return fmt.Sprintf("MySQL database %s at %s", s.mysql.DBName, s.mysql.Addr)
	}
	return "SQLite database " + s.sqlite
}
