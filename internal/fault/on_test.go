//go:build txmq_fault

package fault

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPointActsOnce(t *testing.T) {
	t.Cleanup(Reset)
	Reset()
	if err := Point(CheckBefore); err != nil || Hits(CheckBefore) != 1 {
		t.Errorf("unarmed: Point = %v, %d hits, want nil, 1", err, Hits(CheckBefore))
	}
	Arm(CheckBefore, "error")
	if err := Point(CheckAnswer); err != nil {
		t.Errorf("another point = %v", err)
	}
	if err := Point(CheckBefore); !errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), string(CheckBefore)) {
		t.Errorf("Point = %v, want ErrInjected at its name", err)
	}
	if err := Point(CheckBefore); err != nil || Hits(CheckBefore) != 3 {
		t.Errorf("again: Point = %v, %d hits, want nil, 3", err, Hits(CheckBefore))
	}
	Arm(CheckBefore, "panic")
	func() {
		defer func() {
			if p := recover(); p == nil {
				t.Error("want a panic")
			}
		}()
		_ = Point(CheckBefore)
	}()
	Arm(CheckBefore, "error")
	Reset()
	if err := Point(CheckBefore); err != nil || Hits(CheckBefore) != 1 {
		t.Errorf("after Reset: Point = %v, %d hits, want nil, 1", err, Hits(CheckBefore))
	}
}

func TestParse(t *testing.T) {
	want := map[Name]armed{"a": {"kill", 1}, "b": {"panic", 3}, "c": {"error", 1}}
	got := parse("a=kill,b=panic@3,c=error@x,,nothing")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(armed{})); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
}

func TestPointIsSafeForConcurrentUse(t *testing.T) {
	t.Cleanup(Reset)
	Reset()
	Arm(JobAfterLease, "error")
	var mu sync.Mutex
	var wg sync.WaitGroup
	acted := 0
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if Point(JobAfterLease) != nil {
					mu.Lock()
					acted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if acted != 1 || Hits(JobAfterLease) != 800 {
		t.Errorf("acted %d times in %d hits, want 1 in 800", acted, Hits(JobAfterLease))
	}
}

func TestKillEndsTheProcess(t *testing.T) {
	const child = "TXMQ_FAULT_CHILD"
	if os.Getenv(child) != "" {
		for range 3 {
			_ = Point(SendAfterCommit)
		}
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillEndsTheProcess$")
	cmd.Env = append(os.Environ(), child+"=1", Environment+"="+string(SendAfterCommit)+"=kill@3")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("child = %v, want killed; output:\n%s", err, out)
	}
	if !strings.Contains(string(out), "killed at "+string(SendAfterCommit)) {
		t.Errorf("output = %s, want the point named", out)
	}
}
