package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	osexec "os/exec" // exec runs a statement here
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq/internal/services"
)

// Servers is a MariaDB and a RocketMQ (name server and broker, of the default
// version) of one test's own, which may be killed: the tests beside it use
// others. Its methods are safe for concurrent use, one at a time for a service.
type Servers struct {
	script string
	env    []string
	found  map[string]string
}

// OwnServers brings them up, with data in a folder of the test's, on ports that
// are free. They end with the test, and with the process, however it ends.
// Where the shared services are missing, or their programs, it skips as those
// do. brokerConf is more lines of broker.conf.
func OwnServers(tb testing.TB, brokerConf ...string) *Servers {
	tb.Helper()
	need(tb, "TXMQ_TEST_MYSQL", "mariadb") // where nobody wants services, none are started
	need(tb, "TXMQ_TEST_NAMESRV", "rocketmq@"+DefaultVersion)
	script, err := serviceScript()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	s := &Servers{script: script, env: append(os.Environ(), "TXMQ_INSTALL=0", "TXMQ_SERVICES_DIR="+dir,
		fmt.Sprintf("TXMQ_SERVICES_SHIFT=%d", freeShift(tb)), "TXMQ_BROKER_CONF="+strings.Join(brokerConf, "\n"))}
	s.guard(tb)
	if err := s.Up(tb.Context(), "mariadb", "rocketmq"); err != nil {
		if os.Getenv("CI") == "true" || !strings.Contains(err.Error(), "services: missing:") {
			tb.Fatal(err)
		}
		tb.Skip(err) // the shared services are another machine's, or Docker's
	}
	text, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		tb.Fatal(err)
	}
	s.found = services.Parse(string(text))
	return s
}

// MySQL is the DSN of a user who may do all.
func (s *Servers) MySQL() string { return s.found["TXMQ_TEST_MYSQL"] }

// NameServer is the address of the name server.
func (s *Servers) NameServer() string { return s.found["TXMQ_TEST_NAMESRV"] }

// Broker is the address of the broker.
func (s *Servers) Broker() string { return s.found["TXMQ_TEST_BROKER"] }

// Kill ends services with SIGKILL, and returns when they are gone: "mariadb",
// "rocketmq" for the broker alone, "namesrv".
func (s *Servers) Kill(ctx context.Context, services ...string) error {
	return s.run(ctx, "kill", services)
}

// Up starts what is not up, and returns when it answers.
func (s *Servers) Up(ctx context.Context, services ...string) error {
	return s.run(ctx, "up", services)
}

func (s *Servers) run(ctx context.Context, command string, services []string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, s.script, append([]string{command}, services...)...)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/services %s %s: %w: %s", command, strings.Join(services, " "), err, out)
	}
	return nil
}

// guard starts a shell that ends the servers when its standard input does: at
// the latest when this process is gone.
func (s *Servers) guard(tb testing.TB) {
	tb.Helper()
	cmd := osexec.Command("setsid", "sh", "-c", //nolint:noctx // ends with its input
		`cat >/dev/null; "$0" kill rocketmq namesrv mariadb; exec "$0" down`, s.script)
	cmd.Env = s.env
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	hold, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(hold.Close(), cmd.Wait()); err != nil && !errors.Is(err, io.EOF) {
			tb.Errorf("the test's own servers: %v: %s", err, &out)
		}
	})
}

// serviceScript is scripts/services of the checkout.
func serviceScript() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		script := filepath.Join(dir, "scripts", "services")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return "", errors.Join(errors.New("there is no scripts/services above this folder"), err)
}

// freeShift is a TXMQ_SERVICES_SHIFT whose ports nobody holds; below the
// ephemeral range, which begins at 32768.
func freeShift(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		shift := 1000 + 100*rand.IntN(80)
		if free(23306+shift, 23376+shift, 23384+shift, 23386+shift, 23387+shift) {
			return shift
		}
	}
	tb.Fatal("no ports are free")
	return 0
}

func free(ports ...int) bool {
	for _, port := range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // does not wait
		if err != nil || l.Close() != nil {
			return false
		}
	}
	return true
}

// Rounds is how often a long test does its thing: small as a rule, full with
// TXMQ_SOAK=1, which make soak sets.
func Rounds(small, full int) int {
	if os.Getenv("TXMQ_SOAK") == "1" {
		return full
	}
	return small
}
