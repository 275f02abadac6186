package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/model"
)

// javaPeer is a process of test/e2e/java/Peer.java.
type javaPeer struct {
	w     *world
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}

	mu    sync.Mutex
	lines []string
	other []string // what the client says, for a failure
}

// javaPeer starts one in the world's producer group, with its transaction log.
func (w *world) javaPeer(t *testing.T) *javaPeer {
	t.Helper()
	classPath := testenv.Java(t)
	dsn, err := mysql.ParseDSN(w.dsn)
	must(t, err)
	p := &javaPeer{w: w, done: make(chan struct{})}
	// Compiled by java itself; what the client logs goes below user.home.
	p.cmd = exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", "-Duser.home="+t.TempDir(),
		"-cp", classPath, "java/Peer.java")
	p.cmd.Env = append(os.Environ(),
		"PEER_NAMESRV="+w.ns, "PEER_GROUP="+w.senders, "PEER_TOPIC="+w.topic,
		fmt.Sprintf("PEER_JDBC=jdbc:mariadb://%s/%s?user=%s&password=%s", dsn.Addr, dsn.DBName, dsn.User, dsn.Passwd))
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.cmd.Stderr = p.cmd.Stdout
	must(t, p.cmd.Start())
	go p.read(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("java said:\n%s\n%s", strings.Join(p.lines, "\n"), tail(strings.Join(p.other, "\n"), 4000))
		}
	})
	p.await(t, "ready")
	return p
}

func (p *javaPeer) read(out io.Reader) {
	defer close(p.done)
	in := bufio.NewScanner(out)
	for in.Scan() {
		line, ours := strings.CutPrefix(in.Text(), "> ")
		p.mu.Lock()
		if ours {
			p.lines = append(p.lines, line)
		} else {
			p.other = append(p.other, line)
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // killed, mostly
}

// kill is kill -9.
func (p *javaPeer) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *javaPeer) said(start string) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if strings.HasPrefix(l, start) {
			found = append(found, l)
		}
	}
	return found
}

func (p *javaPeer) await(t *testing.T, start string) {
	t.Helper()
	p.w.until(t, "java says "+start, func() (bool, string) {
		if len(p.said(start)) > 0 {
			return true, ""
		}
		select {
		case <-p.done:
			t.Fatalf("java ended with %v before it said %s", p.cmd.ProcessState, start)
		default:
		}
		return false, fmt.Sprint(p.said(""))
	})
}

// send has it run one local transaction, by plan (see Peer.java).
func (p *javaPeer) send(t *testing.T, event, plan, state string) {
	t.Helper()
	_, err := fmt.Fprintf(p.stdin, "send %s %s\n", event, plan)
	must(t, err)
	p.await(t, "sent "+event+" "+state)
}

// TestJava has one producer group with a process in Go and one in Java, which
// write one transaction log. A check-back of either's half reaches either.
func TestJava(t *testing.T) {
	t.Parallel()
	testenv.Java(t) // skips here, not in the subtest's world
	w := newWorld(t)
	w.consumer(t, new(events))
	seen := new(events)
	java := w.javaPeer(t)
	losing := w.proxy(t)
	losing.Inject(wireproxy.Fault{Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Match: endOfSend})
	p := w.producer(t, seen, through(losing))
	fails := func(event string) {
		_, err := p.SendInTransaction(w.ctx, w.message(event), func(tx *gorm.DB) error {
			must(t, w.order(event)(tx))
			return errBusiness
		})
		wantError(t, err, errBusiness)
	}

	t.Run("side by side", func(t *testing.T) {
		java.send(t, "j-told", "commit", "COMMIT_MESSAGE")
		java.send(t, "j-refused", "fail", "ROLLBACK_MESSAGE")
		java.send(t, "j-lost", "commit lose", "UNKNOW")
		java.send(t, "j-bare", "commit lose bare", "UNKNOW")
		java.send(t, "j-fails", "fail lose", "UNKNOW")
		w.send(t, p, "g-lost")
		fails("g-fails")
		w.send(t, p, "shared")
		java.send(t, "shared", "commit", "ROLLBACK_MESSAGE") // has committed before
		w.until(t, "the failures fenced", func() (bool, string) {
			fences := w.strings(t, "SELECT fenced_event FROM t_tx_log WHERE state = ?", model.Fenced)
			return slices.Contains(fences, "g-fails") && slices.Contains(fences, "j-fails"), fmt.Sprint(fences)
		})
		w.settled(t, "g-lost", "j-bare", "j-lost", "j-told", "shared")
	})

	t.Run("a consumer in Java sees the event ID", func(t *testing.T) {
		for _, e := range []string{"g-lost", "j-bare", "j-lost", "j-told", "shared"} {
			java.await(t, "got "+e)
		}
	})

	t.Run("Go answers for Java, which is killed", func(t *testing.T) {
		java.send(t, "j-orphan", "commit lose", "UNKNOW")
		java.send(t, "j-orphan-bare", "commit lose bare", "UNKNOW")
		java.kill()
		w.settled(t, "g-lost", "j-bare", "j-lost", "j-orphan", "j-orphan-bare", "j-told", "shared")
	})

	t.Run("Java answers for Go, which has stopped", func(t *testing.T) {
		other := w.javaPeer(t)
		other.send(t, "j-awake", "commit", "COMMIT_MESSAGE") // a client that has sent nothing is not asked
		w.send(t, p, "g-orphan")
		fails("g-fails-again")
		must(t, p.Close(w.ctx))
		other.await(t, "checked g-fails-again UNKNOW")
		w.settled(t, "g-lost", "g-orphan", "j-awake", "j-bare", "j-lost", "j-orphan", "j-orphan-bare", "j-told", "shared")
		neverWrong(t, other, nil)
	})
	neverWrong(t, java, of[txmq.Checked](seen))
}

// neverWrong looks at every answer; what has "fails" or "refused" in its name
// rolled back, and of what is shared one half did.
func neverWrong(t *testing.T, p *javaPeer, checks []txmq.Checked) {
	t.Helper()
	failed := func(event string) bool { return strings.Contains(event, "fails") || strings.Contains(event, "refused") }
	fine := func(event string) bool { return !failed(event) && event != "shared" }
	for _, line := range p.said("checked ") {
		switch f := strings.Fields(line); {
		case f[2] == "COMMIT_MESSAGE" && failed(f[1]), f[2] == "ROLLBACK_MESSAGE" && fine(f[1]):
			t.Errorf("java %s: wrong", line)
		}
	}
	for _, c := range checks {
		if c.Verdict == txmq.Commit && failed(c.EventID) || c.Verdict == txmq.Rollback && fine(c.EventID) {
			t.Errorf("check = %+v: wrong", c)
		}
	}
}
