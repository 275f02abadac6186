package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A service may end with exit status 1, such as when the broker did not answer
// its start in time, maxExits times; then it is not started again. Any other
// end that nobody asked for, as a panic's, is a fault of its own.
const maxExits = 5

// restartPause is what a supervisor waits before the next process: a database
// that is down for a second shall not use the exits up.
const restartPause = time.Second

// troupe runs the services as child processes.
type troupe struct {
	program string
	env     []string
	logs    string // folder
	say     func(format string, args ...any)

	wg     sync.WaitGroup
	mu     sync.Mutex
	actors []*actor
	fatal  error // a service did not do well
}

// actor is one service: at any time one process at most. Only the demo's own
// goroutine calls its methods.
type actor struct {
	t    *troupe
	name string
	args []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	gone  chan struct{} // closed when cmd has been waited for
	asked bool          // cmd is to end
	exits int           // unasked
	exit  error         // of the last process
}

// start brings a service up.
func (t *troupe) start(name string, args ...string) (*actor, error) {
	a := &actor{t: t, name: name, args: args}
	t.mu.Lock()
	t.actors = append(t.actors, a)
	t.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.spawn()
}

// spawn needs a.mu.
func (a *actor) spawn() error {
	out, err := os.OpenFile(filepath.Join(a.t.logs, a.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()          // the child has its own
	cmd := exec.Command(a.t.program, a.args...) //nolint:noctx // outlives any one context; close ends it
	cmd.Env, cmd.Stdout, cmd.Stderr = a.t.env, out, out
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", a.name, err)
	}
	a.cmd, a.gone, a.asked = cmd, make(chan struct{}), false
	a.t.wg.Go(func() { a.watch(cmd, a.gone) })
	return nil
}

// watch waits for a process, and starts the next one when nobody asked it to
// end, after a pause: what a supervisor does.
func (a *actor) watch(cmd *exec.Cmd, gone chan struct{}) {
	if !a.ended(cmd.Wait(), cmd, gone) {
		return
	}
	<-time.After(restartPause)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked || a.cmd != cmd { // ended, or started again, meanwhile
		return
	}
	if err := a.spawn(); err != nil {
		a.t.fail(err)
	}
}

// ended notes the end of a process, and says whether another is to follow.
func (a *actor) ended(err error, cmd *exec.Cmd, gone chan struct{}) (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exit = err
	close(gone)
	if a.asked {
		return false
	}
	a.exits++
	a.t.say("%s ended by itself (%v): %s", a.name, err, a.lastLine())
	if cmd.ProcessState.ExitCode() != 1 || a.exits == maxExits {
		a.t.fail(fmt.Errorf("%s ended by itself: %w: %s", a.name, err, a.lastLine()))
	}
	return a.exits < maxExits
}

func (t *troupe) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fatal = errors.Join(t.fatal, err)
}

func (a *actor) lastLine() string {
	text, err := os.ReadFile(filepath.Join(a.t.logs, a.name+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// alarms says what the services' logs have that no service of a good run has.
func (t *troupe) alarms() (errs error) {
	for _, a := range t.actors {
		text, err := os.ReadFile(filepath.Join(t.logs, a.name+".log"))
		errs = errors.Join(errs, err)
		for _, sign := range []string{"WARNING: DATA RACE", "panicked", "\npanic: "} {
			if strings.Contains(string(text), sign) {
				errs = errors.Join(errs, fmt.Errorf("log of %s has %q", a.name, strings.TrimSpace(sign)))
			}
		}
	}
	return errs
}

// err says whether a service ended as it should not.
func (t *troupe) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fatal
}

func (a *actor) pid() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd.Process.Pid
}

func (a *actor) signal(s os.Signal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd.Process.Signal(s)
}

// stop and wake make the process stand still, and go on.
func (a *actor) stop() error { return a.signal(syscall.SIGSTOP) }
func (a *actor) wake() error { return a.signal(syscall.SIGCONT) }

// end sends a last signal and waits until the process is gone.
func (a *actor) end(ctx context.Context, s os.Signal) error {
	a.mu.Lock()
	a.asked = true
	gone := a.gone
	err := a.cmd.Process.Signal(s)
	a.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", a.name, context.Cause(ctx))
	}
}

// kill is kill -9.
func (a *actor) kill(ctx context.Context) error { return a.end(ctx, syscall.SIGKILL) }

// again starts the next process of a service that was killed.
func (a *actor) again() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spawn()
}

// finish asks every service to end as an operator would, and is an error when
// one does not do so cleanly.
func (t *troupe) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, a := range t.actors {
		if err := a.end(ctx, syscall.SIGTERM); err != nil {
			errs = append(errs, err)
		} else if a.exit != nil {
			errs = append(errs, fmt.Errorf("%s ended with %w: %s", a.name, a.exit, a.lastLine()))
		}
	}
	return errors.Join(errs...)
}

// close kills what is left and waits for it.
func (t *troupe) close() {
	for _, a := range t.actors {
		a.mu.Lock()
		a.asked = true
		if a.cmd != nil {
			_ = a.cmd.Process.Kill() // fails only when it is gone
		}
		a.mu.Unlock()
	}
	t.wg.Wait()
}
