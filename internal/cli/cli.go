package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"github.com/txmq/txmq"
)

const description = `Look after the tables of txmq: migrate them, look into them, run the jobs that keep them healthy.

Settings come from the file that --config names, from the environment and from flags; the later wins. In the file a setting has the name of its flag (dsn-file: /etc/txmq/dsn), in the environment TXMQ_ before it ($TXMQ_DSN_FILE). An unknown one is an error. txmq config shows what is in force and where it comes from.

The database is named by --dsn, else by $TXMQ_DSN, else by the first line of --dsn-file, else by the file's dsn or dsn-file; the first that is set counts. All but the first keep the password out of the process list. It is one of

  mysql://user:password@tcp(host:port)/database?param=value
  user:password@tcp(host:port)/database (the same, as in Go programs)
  sqlite:///absolute/path.db or sqlite://relative/path.db

for MySQL, MariaDB and SQLite. The password stands as it is, not URL-encoded. parseTime and loc are always set to true and UTC here, whatever the DSN says. Passwords are never printed.

Exit codes: 0 done, 1 failed, 2 wrong usage.`

// commands is the whole command line. A flag tagged once is an argument of one
// call; every other is a setting, which the file and the environment may give.
type commands struct {
	Config         string        `placeholder:"PATH" help:"File of settings, in YAML or JSON. None is read unless named."`
	DSN            txmq.Secret   `name:"dsn" placeholder:"DSN" help:"The database, as said above."`
	DSNFile        string        `name:"dsn-file" placeholder:"PATH" help:"File whose first line is the DSN; - is the standard input."`
	Prefix         string        `default:"t_" help:"What the tables' names start with."`
	ConnectTimeout time.Duration `default:"5s" help:"How long to wait for the database to answer. What then asks for the tables has as long again."`
	NameServers    []string      `placeholder:"IP:PORT" help:"RocketMQ's name servers. The client resolves no host names."`
	AccessKey      string        `placeholder:"KEY" help:"Signs requests to brokers with ACL, with --secret-key."`
	SecretKey      txmq.Secret   `placeholder:"KEY" help:"Keep it out of the process list: give it in the file or the environment."`

	Migrate migrateCommands `cmd:"" help:"Make, update and show the tables."`
	Records recordsCommands `cmd:"" help:"Look into the consume records, and settle those that need a person."`
	Audit   auditCommand    `cmd:"" help:"List what was done by hand: who, what, why."`
	Serve   serveCommand    `cmd:"" help:"Run the jobs, with /livez and /readyz, until SIGTERM."`
	Show    configCommand   `cmd:"" name:"config" help:"Show the settings in force, and where each comes from."`
	Version versionCommand  `cmd:"" help:"Print the version."`
}

// app is what every command gets.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	root           *commands
	conf           *configuration
}

// exited carries kong's wish to exit (after --help) up to Run.
type exited int

// Run does what args say, and returns the exit code. It ends early, and
// cleanly, when ctx ends.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	root := &commands{}
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, root: root, conf: &configuration{}}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case exited:
			code = int(v)
		default:
			panic(v)
		}
	}()
	parser, err := kong.New(root,
		kong.Name("txmq"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(a),
		kong.ValueFormatter(helpOf), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}))
	if err != nil {
		return report(stderr, err, args)
	}
	parsed, err := parser.Parse(args)
	var known *failure
	var wrong *kong.ParseError
	switch {
	case errors.As(err, &known): // of the file or the environment
	case errors.As(err, &wrong):
		err = usage(helpFor(wrong.Context), "%w", err)
	case err != nil:
		err = usage(helpFor(nil), "%w", err)
	default:
		a.conf.flags(parsed)
		err = explained(parsed.Run(), parsed)
	}
	return report(stderr, err, append(a.conf.texts, args...))
}

// explained gives a bad field the hint of the command that it was of.
func explained(err error, parsed *kong.Context) error {
	var known *failure
	var schema *txmq.SchemaError
	var field *txmq.FieldError
	if errors.As(err, &known) || errors.As(err, &schema) || !errors.As(err, &field) {
		return err
	}
	return usage(helpFor(parsed), "%w", err)
}
