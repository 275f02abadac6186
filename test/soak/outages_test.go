package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/txmq/txmq/examples/orders/demo"
	"github.com/txmq/txmq/internal/testenv"
)

// checksOutlastTheRestart: a restarted broker counts a check each second, but
// knows no producer before the next heart-beat, up to 30 s later. With the 15
// checks of scripts/services it would give the halves up unasked; with its own
// defaults (15 of 30 s or 60 s) it does not.
const checksOutlastTheRestart = "transactionCheckMax=100"

// TestOutages is the demo on servers that die: the ledger has to be the same.
func TestOutages(t *testing.T) {
	servers := testenv.OwnServers(t, checksOutlastTheRestart)
	t.Setenv("TMPDIR", t.TempDir()) // for the logs, which a run that is not good keeps
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv("TXMQ_SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d; TXMQ_SOAK_SEED repeats it, but for what the scheduler does", seed)

	away := func(name, service string, times int) demo.Outage {
		return demo.Outage{
			Name: name, Times: times,
			Kill: func(ctx context.Context) error { return servers.Kill(ctx, service) },
			Up:   func(ctx context.Context) error { return servers.Up(ctx, service) },
		}
	}
	databases, brokers, stops := testenv.Rounds(2, 10), testenv.Rounds(1, 5), testenv.Rounds(3, 20)
	orders := 60 * (databases + brokers + stops)
	var out bytes.Buffer
	err := demo.Run(t.Context(), demo.Config{
		DSN: servers.MySQL(), NameServer: servers.NameServer(), Database: "outages",
		Program: build(t), Env: os.Environ(), Seed: seed,
		Orders: orders, MinCommitted: orders / 2, Scenes: 1, Stops: stops,
		Outages: []demo.Outage{away("MariaDB", "mariadb", databases), away("the broker", "rocketmq", brokers)},
		Timeout: time.Duration(testenv.Rounds(5, 25)) * time.Minute, Out: io.MultiWriter(&out, progress{t}),
	})
	if err != nil {
		t.Fatal(err) // with every number that is not right
	}
	atLeast(t, out.String(), "outages", databases+brokers)
	atLeast(t, out.String(), "stops", stops)
}

// atLeast looks at the last name=number of the run.
func atLeast(t *testing.T, out, name string, want int) {
	t.Helper()
	all := regexp.MustCompile(`\b`+name+`=(\d+)`).FindAllStringSubmatch(out, -1)
	if all == nil {
		t.Fatalf("the run does not say %s=", name)
	}
	if got, err := strconv.Atoi(all[len(all)-1][1]); err != nil || got < want {
		t.Errorf("%s=%d, want %d or more", name, got, want)
	}
}

// progress shows the run's lines as they come.
type progress struct{ t *testing.T }

func (p progress) Write(text []byte) (int, error) {
	p.t.Log(string(bytes.TrimSuffix(text, []byte("\n"))))
	return len(text), nil
}

// build compiles the orders example, whose processes the demo kills.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "orders")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "github.com/txmq/txmq/examples/orders")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(errors.Join(err, fmt.Errorf("%s", out)))
	}
	return bin
}
