package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq"
)

// Exit codes.
const (
	exitOK = iota
	exitFailure
	exitUsage
)

// failure is an error that knows its way out.
type failure struct {
	err  error
	hint string
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usage is a mistake on the command line.
func usage(hint, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: hint, code: exitUsage}
}

// failed is an error with a hint of its own.
func failed(err error, hint string) error {
	return &failure{err: err, hint: hint, code: exitFailure}
}

// report writes an error and its hint, and gives the exit code.
func report(stderr io.Writer, err error, args []string) int {
	if err == nil {
		return exitOK
	}
	text, hint, code := err.Error(), "", exitFailure
	var known *failure
	var schema *txmq.SchemaError
	var field *txmq.FieldError
	switch {
	case errors.As(err, &known):
		hint, code = known.hint, known.code
	case errors.As(err, &schema):
		bare := *schema
		bare.Hint = ""
		text, hint = bare.Error(), schema.Hint
	case errors.As(err, &field):
		hint, code = "see `txmq --help`", exitUsage
	default:
		hint = hintOf(err)
	}
	text = withoutSecrets(inFlags(strings.TrimPrefix(text, "txmq: ")), args)
	_, _ = fmt.Fprintf(stderr, "txmq: %s\nhint: %s\n", text, cmp.Or(hint, hintOf(err)))
	return code
}

// MySQL errors that a person can do something about.
var mysqlHints = map[uint16]string{
	1044: "grant the user its rights on that database",
	1045: "check the DSN's user and password, and from which hosts that user may connect",
	1049: "create the database, or correct its name in the DSN",
	1142: "grant the user its rights on the tables; `txmq migrate up` needs CREATE, ALTER and INDEX as well",
	1040: "the server has no connection left: raise max_connections, or close some",
	1129: "the server has blocked this host: FLUSH HOSTS there",
	1130: "allow the user to connect from this host",
}

const hintReach = "check that the database is up, and the host and port in the DSN"

func hintOf(err error) string {
	var server *mysql.MySQLError
	var op net.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &server) && mysqlHints[server.Number] != "":
		return mysqlHints[server.Number]
	case errors.Is(err, context.Canceled):
		return "it was interrupted; run it again"
	case errors.Is(err, txmq.ErrJobRunning):
		return "wait for it to end"
	case errors.Is(err, syscall.EADDRINUSE):
		return "choose another address with --listen"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &op), errors.As(err, &dial),
		errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, io.EOF):
		return hintReach
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "check the path and its permissions"
	case strings.Contains(err.Error(), "unable to open database file"):
		return "check the path; `txmq migrate up` makes the file, not its folder"
	case strings.Contains(err.Error(), "file is not a database"):
		return "check the path: that file is something else"
	default:
		return "see the database's own log, and `txmq --help`"
	}
}

// dsnRule is what a DSN looks like: with a scheme, or user:password@ and more.
var dsnRule = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://|^[^:@/]*:.*@.*[(/]`)

// withoutSecrets takes a DSN that was given in the wrong place out of an error's
// text: the command line's parser, the file system and the network quote what
// they don't understand.
func withoutSecrets(text string, args []string) string {
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, part := range []string{arg, value} {
			if !dsnRule.MatchString(part) {
				continue
			}
			quoted := strconv.Quote(part)
			text = strings.ReplaceAll(text, part, "[DSN]")
			text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], "[DSN]")
		}
	}
	return text
}
