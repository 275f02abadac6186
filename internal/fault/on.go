//go:build txmq_fault

package fault

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled says whether the points are compiled in.
const Enabled = true

// ErrInjected is what Point returns for the action "error".
var ErrInjected = errors.New("injected fault")

// Environment is the variable that arms points in a child process:
// "name=action" or "name=action@n" for the n-th hit, comma-separated. Actions
// are kill, panic and error.
const Environment = "TXMQ_FAULT"

type armed struct {
	action string
	at     int // which hit acts, from 1
}

var (
	mu    sync.Mutex
	plans = parse(os.Getenv(Environment))
	hits  = map[Name]int{}
)

func parse(env string) map[Name]armed {
	plans := map[Name]armed{}
	for part := range strings.SplitSeq(env, ",") {
		name, action, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		action, nth, _ := strings.Cut(action, "@")
		n, err := strconv.Atoi(nth)
		if err != nil {
			n = 1
		}
		plans[Name(name)] = armed{action, n}
	}
	return plans
}

// Arm makes a point act once, at its next hit.
func Arm(name Name, action string) {
	mu.Lock()
	defer mu.Unlock()
	plans[name] = armed{action, hits[name] + 1}
}

// Reset disarms every point and forgets the hits.
func Reset() {
	mu.Lock()
	defer mu.Unlock()
	clear(plans)
	clear(hits)
}

// Hits counts how often a point was passed.
func Hits(name Name) int {
	mu.Lock()
	defer mu.Unlock()
	return hits[name]
}

// Point acts if it is armed for this hit. kill ends the process with SIGKILL,
// after a line on stderr that names the point.
func Point(name Name) error {
	mu.Lock()
	hits[name]++
	plan, ok := plans[name]
	act := ok && plan.at == hits[name]
	mu.Unlock()
	if !act {
		return nil
	}
	switch plan.action {
	case "kill":
		fmt.Fprintf(os.Stderr, "killed at %s\n", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic(fmt.Sprintf("injected panic at %s", name))
	default:
		return fmt.Errorf("%w at %s", ErrInjected, name)
	}
}
