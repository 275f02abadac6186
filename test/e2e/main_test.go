// Package e2e runs txmq on a real broker and a real MariaDB, kills its
// processes in the middle, and then counts by SQL what came of it.
//
// The killed ones are children: the service in test/e2e/worker, built with the
// tag txmq_fault, in which named fault points (internal/fault) end the process
// with SIGKILL, panic, or meet an error. The others run in the test itself.
//
// Every test has a database, a topic and groups of its own. The effect tables
// have no unique key, so that what happens twice is seen twice.
package e2e

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) {
	// These tests wait for the broker's clock, not for a processor. A flag on
	// the command line comes later, and counts.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	testenv.Main(m, goleak.Cleanup(func(code int) {
		for _, dir := range []string{builds.dir, builds.older} {
			if dir != "" {
				_ = os.RemoveAll(dir)
			}
		}
		os.Exit(code)
	}))
}

// patience bounds each test. What a test waits for comes within seconds, with
// one exception: a heart-beat that the broker takes up after its sender was
// killed registers a ghost, which keeps its queues until the broker's
// channelExpiredTimeout, 120 s, and a scan every 10 s.
const patience = 4 * time.Minute

var builds struct {
	mu    sync.Mutex
	dir   string
	older string // of an older commit
	made  map[string]string
}

// build compiles a command of this module, once a test binary.
func build(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	name := filepath.Base(pkg)
	for _, f := range flags {
		name += f
	}
	if bin, ok := builds.made[name]; ok {
		return bin
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "txmq-e2e") //nolint:usetesting // outlives the test that comes first
		if err != nil {
			t.Fatal(err)
		}
		builds.dir, builds.made = dir, map[string]string{}
	}
	bin := filepath.Join(builds.dir, name)
	args := append(append([]string{"build", "-buildvcs=false", "-o", bin}, flags...), pkg)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	builds.made[name] = bin
	return bin
}

const (
	workerPkg = "github.com/txmq/txmq/test/e2e/worker"
	faultTag  = "-tags=txmq_fault"
)
