package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// before is the last commit whose tables are those of step 1 alone.
const before = "f421ca93cf299c25e4a02c0dc6440d660702a5e8"

// older builds the worker and the command of an older commit.
func older(t *testing.T, commit string) (worker, command string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--git-dir").CombinedOutput(); err != nil {
		t.Skipf("no history to build an older version from: %s", out) // a source archive
	}
	if exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		const text = "commit %s is not in this clone: git fetch --unshallow"
		if os.Getenv("CI") == "true" {
			t.Fatalf(text, commit)
		}
		t.Skipf(text, commit)
	}
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if builds.older == "" {
		dir, err := os.MkdirTemp("", "txmq-older") //nolint:usetesting // outlives the test that comes first
		must(t, err)
		builds.older = dir
		run(t, "sh", "-c", `git -C "$(git rev-parse --show-toplevel)" archive "$0" | tar -x -C "$1"`, commit, dir)
		run(t, "go", "-C", dir, "build", "-buildvcs=false", "-o", dir+"/bin/", "./test/e2e/worker", "./cmd/txmq")
	}
	return filepath.Join(builds.older, "bin", "worker"), filepath.Join(builds.older, "bin", "txmq")
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestRollingUpgrade goes from one version to the next as docs/compatibility.md
// says: the older one at work, migrate up, both side by side, the newer alone.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	inModes(t, "migrate up, then one program after the other", func(t *testing.T, mode func(*protocol.Setup)) {
		oldWorker, oldCommand := older(t, before)
		w := newBareWorld(t, remoting.Keys{}, testenv.NameServer(t), testenv.Broker(t), 4)
		w.migrateBy(t, oldCommand)
		var schema *txmq.SchemaError
		if _, err := model.Open(w.ctx, w.db, model.Config{}); !errors.As(err, &schema) || !strings.Contains(err.Error(), "txmq migrate up") {
			t.Errorf("Open by the newer program before the migration = %v, want it to say `txmq migrate up`", err)
		}

		setup := w.setup(mode, func(s *protocol.Setup) { s.Proxy = true })
		var sent []string
		send := func(c *child, what string, n int) {
			for i := range n {
				e := fmt.Sprintf("%s-%02d", what, i)
				sent = append(sent, e)
				c.do(t, protocol.Command{Do: protocol.DoSend, Event: e, Body: "{}", Tries: 5, LoseEnd: i == 1})
			}
		}
		first := w.start(t, exec.Command(oldWorker), setup)
		first.ready(t)
		send(first, "before", 5)
		first.await(t, "an event before the migration", line("Delivered", "", outcome("done")))
		send(first, "during", 20)
		w.open(t) // migrates, under the older one's load

		second := w.ready(t, setup)
		for round := 0; first.fresh("beside") == 0 || second.fresh("beside") == 0; round++ {
			send(first, fmt.Sprintf("beside-old-%d", round), 6)
			send(second, fmt.Sprintf("beside-new-%d", round), 6)
			w.settled(t, sent...)
		}
		send(first, "last", 2)
		send(second, "last-new", 2)
		w.settled(t, sent...)
		first.stop(t)
		send(second, "after", 6)
		w.settled(t, sent...)
		second.stop(t)
	})

	for _, newerDies := range []bool{false, true} {
		t.Run(fmt.Sprintf("work of a dead one is the other's, the newer dies: %v", newerDies), func(t *testing.T) {
			t.Parallel()
			oldWorker, _ := older(t, before)
			commands := []*exec.Cmd{exec.Command(oldWorker), exec.Command(build(t, workerPkg, faultTag))}
			if newerDies {
				commands[0], commands[1] = commands[1], commands[0]
			}
			w := newWorld(t)
			w.send(t, w.producer(t, new(events)), "a")
			first := w.start(t, commands[0], w.setup(consuming, tracked, holding, brief))
			first.await(t, "the handler", line(protocol.Holding, "a"))
			second := w.start(t, commands[1], w.setup(consuming, tracked, w.other, brief))
			second.await(t, "in progress elsewhere", line("Delivered", "a", outcome("in_progress")))
			first.kill(t)
			if done := second.await(t, "done", line("Delivered", "a", outcome("done"))); !done.TookOver || done.Run != 2 {
				t.Errorf("done = %+v, want run 2, taken over", done)
			}
			w.settled(t, "a")
			wantRecord(t, w, "a", 1)
		})
	}
}

// TestMigrationPatience: an ALTER waits for a transaction that has read the
// table, and all others wait behind it.
func TestMigrationPatience(t *testing.T) {
	t.Parallel()
	_, oldCommand := older(t, before)
	w := newBareWorld(t, remoting.Keys{}, testenv.NameServer(t), testenv.Broker(t), 1)
	w.migrateBy(t, oldCommand)
	handler, err := w.sql.BeginTx(w.ctx, nil)
	must(t, err)
	defer func() { _ = handler.Rollback() }()
	must(t, handler.QueryRowContext(w.ctx, "SELECT COUNT(*) FROM t_msg_consume").Scan(new(int)))

	_, err = model.Migrate(w.ctx, openGorm(t, w.dsn+"&lock_wait_timeout=1"), model.Config{})
	var refused *mysqldriver.MySQLError
	if !errors.As(err, &refused) || refused.Number != 1205 {
		t.Errorf("Migrate beside a long transaction = %v, want error 1205 (lock wait)", err)
	}
	must(t, handler.Commit())
	w.open(t) // takes it up again
}

// migrateBy has a command make the tables.
func (w *world) migrateBy(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(w.ctx, command, "migrate", "up")
	cmd.Env = append(os.Environ(), "TXMQ_DSN="+w.dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s migrate up: %v\n%s", command, err, out)
	}
}

// fresh is how many events of the name the worker has done.
func (c *child) fresh(name string) int {
	return len(c.all(func(l protocol.Line) bool {
		return l.Type == "Delivered" && l.Outcome == "done" && strings.HasPrefix(l.Event, name)
	}))
}
