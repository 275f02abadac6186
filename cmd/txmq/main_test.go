package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/rogpeppe/go-internal/testscript"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// In the scripts, txmq is this binary run as the command: a process of its own.
func TestMain(m *testing.M) { testscript.Main(checked{m}, map[string]func(){"txmq": main}) }

// checked fails when the tests leave goroutines behind. testenv.Main would end
// the process before testscript has tidied up.
type checked struct{ m *testing.M }

func (c checked) Run() int {
	code := c.m.Run()
	if err := testenv.Leaks(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs each story of testdata/script on an empty database of its
// own, which $TXMQ_DSN names.
func TestScripts(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		scripts(t, false, func(env *testscript.Env) string {
			path := filepath.Join(env.WorkDir, "txmq.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil { // an empty file is an empty database
				t.Error(err)
			}
			return "sqlite://" + path
		})
	})
	t.Run("MariaDB", func(t *testing.T) {
		testenv.MySQL(t) // skips here, not in every story
		scripts(t, true, func(env *testscript.Env) string { return "mysql://" + testenv.MySQL(env.T().(testing.TB)) })
	})
}

func scripts(t *testing.T, mariadb bool, dsn func(*testscript.Env) string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TXMQ_DSN", dsn(env))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // under -race each process lingers for a second otherwise
			env.Values[served{}] = new(served)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "mariadb" {
				return false, fmt.Errorf("unknown condition %s", cond)
			}
			return mariadb, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"seed": seed, "sql": sqlFile, "bury": bury, "adopted": adopted, "serve": serve, "probe": probe, "finish": finish, "code": code, "dsnfile": dsnfile,
		},
	})
}

// seed writes the records that the stories look at: through the transitions, an
// hour ago but for the last one.
func seed(ts *testscript.TestScript, _ bool, _ []string) {
	ctx, clock := context.Background(), new(dbclock.Offset)
	s, done := open(ts, clock)
	defer done()
	clock.Add(-time.Hour)
	tx, err := s.Begin(ctx)
	ts.Check(err)
	_, err = tx.Apply(ctx, of("pay:1", "shares:order-paid"), time.Second)
	ts.Check(err)
	ts.Check(tx.Commit(ctx))
	ts.Check(s.Fail(ctx, model.Failure{Arrival: of("pay:2", "shares:order-paid"), Err: errors.New("no such account\nsecond line")}))
	ts.Check(s.Fail(ctx, model.Failure{
		Arrival: of("pay:2", "mail:order-paid"), Dead: true, RetryCnt: 15, Err: errors.New("mailbox full"),
		Body: []byte("BODY-OF-THE-MESSAGE"), Properties: map[string]string{"k": "PROPERTY"},
	}))
	_, err = s.Claim(ctx, of("evil\n\x1b[31m", "shares:order-paid"), "worker-1", time.Minute, time.Second)
	ts.Check(err)
	clock.Add(time.Hour)
	_, err = s.Claim(ctx, of("pay:3", "shares:order-paid"), "worker-2", time.Hour, time.Second)
	ts.Check(err)
}

// bury writes two DEAD records of a handler: one of a message without event ID.
func bury(ts *testscript.TestScript, _ bool, args []string) {
	s, done := open(ts, nil)
	defer done()
	ts.Check(s.Bury(context.Background(), model.Failure{Arrival: of("missing_id:MSG:OFF", args[0]), Err: errors.New("no event ID")}))
	ts.Check(s.Fail(context.Background(), model.Failure{Arrival: of("pay:8", args[0]), Dead: true, Err: errors.New("no")}))
}

// adopted writes the FAIL record of a handler that `txmq migrate adopt` would.
func adopted(ts *testscript.TestScript, _ bool, args []string) {
	s, done := open(ts, nil)
	defer done()
	ts.Check(s.Fail(context.Background(), model.Failure{Arrival: model.Arrival{EventID: "pay:9", Consumer: args[0]}, Err: errors.New("no")}))
}

func of(event, consumer string) model.Arrival {
	return model.Arrival{
		EventID: event, Consumer: consumer, PayloadHash: sha256.Sum256([]byte(event)),
		At: model.Position{Topic: "order-paid", BrokerName: "broker-a", QueueID: 3, QueueOffset: 17, MsgID: "MSG", OffsetMsgID: "OFF"},
	}
}

// open gives the store that $TXMQ_DSN names.
func open(ts *testscript.TestScript, clock *dbclock.Offset) (s *model.Store, done func()) {
	db, done := openDB(ts)
	s, err := model.Open(context.Background(), db, model.Config{Clock: clock})
	ts.Check(err)
	return s, done
}

func openDB(ts *testscript.TestScript) (db *gorm.DB, done func()) {
	var dialector gorm.Dialector
	if path, ok := strings.CutPrefix(ts.Getenv("TXMQ_DSN"), "sqlite://"); ok {
		dialector = sqlite.Open(path)
	} else {
		dialector = mysql.Open(strings.TrimPrefix(ts.Getenv("TXMQ_DSN"), "mysql://"))
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	ts.Check(err)
	return db, func() {
		pool, err := db.DB()
		ts.Check(err)
		ts.Check(pool.Close())
	}
}

// sqlFile runs the statements of a file: sql theirs.sql.
func sqlFile(ts *testscript.TestScript, _ bool, args []string) {
	db, done := openDB(ts)
	defer done()
	for statement := range strings.SplitSeq(ts.ReadFile(args[0]), ";\n") {
		if strings.TrimSpace(statement) != "" {
			ts.Check(db.Exec(statement).Error)
		}
	}
}

// served is the running `txmq serve` of a script.
type served struct {
	cmd  *exec.Cmd
	addr string
	log  *bufio.Scanner
}

// serve starts `txmq serve` with args, and waits for its line "serving".
func serve(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath("txmq")
	ts.Check(err)
	cmd := exec.Command(path, append([]string{"serve", "--listen=127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "TXMQ_DSN="+ts.Getenv("TXMQ_DSN"), "GORACE=atexit_sleep_ms=0")
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { // errors where it has ended, as it should have
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := process(ts)
	s.cmd, s.log = cmd, bufio.NewScanner(stderr)
	s.addr = s.await(ts, "serving").Listen
}

func process(ts *testscript.TestScript) *served { return ts.Value(served{}).(*served) }

type logLine struct {
	Msg, Listen, Job string
	Done             int
}

// await reads the log until a message comes.
func (s *served) await(ts *testscript.TestScript, msg string) logLine {
	for s.log.Scan() {
		var line logLine
		if err := json.Unmarshal(s.log.Bytes(), &line); err != nil {
			ts.Fatalf("log line is no JSON: %s", s.log.Text())
		}
		ts.Logf("[serve] %s", s.log.Text())
		if line.Msg == msg {
			return line
		}
	}
	ts.Fatalf("txmq serve ended without %q", msg)
	return logLine{}
}

// probe asks a page for its status: probe /readyz 200.
func probe(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := http.Get("http://" + process(ts).addr + args[0])
	ts.Check(err)
	ts.Check(resp.Body.Close())
	if got := strings.Fields(resp.Status)[0]; got != args[1] {
		ts.Fatalf("GET %s = %s, want %s", args[0], got, args[1])
	}
}

// finish sends a signal, SIGTERM or SIGINT, after the log had the message args[1],
// and checks that the process ends with 0.
func finish(ts *testscript.TestScript, _ bool, args []string) {
	s := process(ts)
	if len(args) > 1 {
		s.await(ts, args[1])
	}
	sig := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT}[args[0]]
	ts.Check(s.cmd.Process.Signal(sig))
	s.await(ts, "stopped")
	ts.Check(s.cmd.Wait())
}

// code runs a command and checks its exit code, which exec does not tell, and
// that an error ends with a hint: code 2 txmq records list --limit=0.
func code(ts *testscript.TestScript, _ bool, args []string) {
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); !errors.As(err, &exit) || fmt.Sprint(exit.ExitCode()) != args[0] {
		ts.Fatalf("%v: %v, want exit code %s", args[1:], err, args[0])
	}
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stderr")), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], "hint: ") {
		ts.Fatalf("the error's last line is no hint")
	}
}

// dsnfile writes $TXMQ_DSN into a file.
func dsnfile(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.Getenv("TXMQ_DSN")+"\n"), 0o600))
}
