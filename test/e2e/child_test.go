package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// child is a worker process.
type child struct {
	w     *world
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended and all its lines are in
	log   bytes.Buffer  // stderr; read it after done

	mu    sync.Mutex
	lines []protocol.Line
	more  chan struct{} // closed and replaced at each line
}

// spawn starts a worker. faults are "point=action", or "point=action@n".
func (w *world) spawn(t *testing.T, s protocol.Setup, faults ...string) *child {
	t.Helper()
	return w.start(t, exec.Command(build(t, workerPkg, faultTag)), s, faults...)
}

// start runs a command that is a worker; it is killed when the test ends.
func (w *world) start(t *testing.T, cmd *exec.Cmd, s protocol.Setup, faults ...string) *child {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	c := &child{w: w, cmd: cmd, done: make(chan struct{}), more: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), protocol.Environment+"="+string(text), "TXMQ_FAULT="+strings.Join(faults, ","))
	c.cmd.Stderr = &c.log
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	stdout, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	go c.read(stdout)
	t.Cleanup(func() { // before the world's database is dropped
		_ = c.cmd.Process.Kill() // a stopped one too; an ended one is no matter
		<-c.done
		if t.Failed() {
			t.Logf("worker %d ended with %v; its lines:\n%sits last words:\n%s", c.cmd.Process.Pid, c.cmd.ProcessState,
				c.story(), tail(c.log.String(), 4000))
		}
	})
	return c
}

// ready is spawn that waits until the worker is connected.
func (w *world) ready(t *testing.T, s protocol.Setup, faults ...string) *child {
	t.Helper()
	c := w.spawn(t, s, faults...)
	c.ready(t)
	return c
}

func (c *child) ready(t *testing.T) {
	t.Helper()
	c.await(t, "ready", func(l protocol.Line) bool { return l.Type == protocol.Ready })
}

// story is all lines, for a person to read.
func (c *child) story() string {
	var b strings.Builder
	for _, l := range c.all(func(protocol.Line) bool { return true }) {
		l.Hits = nil
		fmt.Fprintf(&b, "%+v\n", l)
	}
	return b.String()
}

func at(name fault.Name, action string) string { return string(name) + "=" + action }

func (c *child) read(stdout io.Reader) {
	defer close(c.done)
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l protocol.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			l = protocol.Line{Type: "garbage", Err: in.Text()}
		}
		c.mu.Lock()
		c.lines = append(c.lines, l)
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
	}
	_ = c.cmd.Wait() // how it ended is in ProcessState
}

func (c *child) do(t *testing.T, commands ...protocol.Command) {
	t.Helper()
	for _, command := range commands {
		text, err := json.Marshal(command)
		must(t, err)
		if _, err := c.stdin.Write(append(text, '\n')); err != nil && !c.ended() {
			t.Fatalf("command %s: %v", command.Do, err)
		}
	}
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// all gives the lines so far that are as told.
func (c *child) all(is func(protocol.Line) bool) (found []protocol.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if is(l) {
			found = append(found, l)
		}
	}
	return found
}

// await returns the first line that is as told, also one from before the call.
func (c *child) await(t *testing.T, what string, is func(protocol.Line) bool) protocol.Line {
	t.Helper()
	for next := 0; ; {
		c.mu.Lock()
		lines, more := c.lines, c.more
		c.mu.Unlock()
		for ; next < len(lines); next++ {
			if is(lines[next]) {
				return lines[next]
			}
		}
		select {
		case <-more:
		case <-c.done:
			if c.all(is) == nil {
				t.Fatalf("worker ended with %v before the line: %s; lines: %+v", c.cmd.ProcessState, what, lines)
			}
		case <-c.w.ctx.Done():
			t.Fatalf("worker has no line: %s; lines: %+v", what, lines)
		}
	}
}

// killedAt waits until the worker has ended itself by SIGKILL at the point.
func (c *child) killedAt(t *testing.T, name fault.Name) {
	t.Helper()
	c.wait(t)
	if !c.sigkilled() || !strings.Contains(c.log.String(), "killed at "+string(name)) {
		t.Fatalf("worker ended with %v, want it killed at %s; stderr:\n%s", c.cmd.ProcessState, name, tail(c.log.String(), 2000))
	}
}

// kill is kill -9.
func (c *child) kill(t *testing.T) {
	t.Helper()
	must(t, c.cmd.Process.Kill())
	c.wait(t)
	if !c.sigkilled() {
		t.Fatalf("worker ended with %v, want SIGKILL", c.cmd.ProcessState)
	}
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must(t, c.cmd.Process.Signal(s))
}

// stop ends the worker cleanly, and returns its last line.
func (c *child) stop(t *testing.T) protocol.Line {
	t.Helper()
	c.do(t, protocol.Command{Do: protocol.DoStop})
	c.wait(t)
	if !c.cmd.ProcessState.Success() {
		t.Fatalf("worker ended with %v, want a clean stop; stderr:\n%s", c.cmd.ProcessState, tail(c.log.String(), 2000))
	}
	return c.await(t, "stopped", func(l protocol.Line) bool { return l.Type == protocol.Stopped })
}

func (c *child) wait(t *testing.T) {
	t.Helper()
	select {
	case <-c.done:
	case <-c.w.ctx.Done():
		t.Fatalf("worker does not end; lines: %+v", c.all(func(protocol.Line) bool { return true }))
	}
}

func (c *child) sigkilled() bool {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// line makes a condition: the type, the event (empty: any), and more.
func line(kind, event string, more ...func(protocol.Line) bool) func(protocol.Line) bool {
	return func(l protocol.Line) bool {
		ok := l.Type == kind && (event == "" || l.Event == event)
		for _, is := range more {
			ok = ok && is(l)
		}
		return ok
	}
}

func verdict(v string) func(protocol.Line) bool {
	return func(l protocol.Line) bool { return l.Verdict == v }
}

func outcome(o string) func(protocol.Line) bool {
	return func(l protocol.Line) bool { return l.Outcome == o }
}

func sending(event string) protocol.Command {
	return protocol.Command{Do: protocol.DoSend, Event: event, Body: "{}"}
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("... %s", s[len(s)-n:])
}
