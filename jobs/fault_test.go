//go:build txmq_fault

package jobs

import (
	"testing"

	"github.com/txmq/txmq/internal/fault"
)

func TestFaults(t *testing.T) {
	for _, action := range []string{"error", "panic"} {
		t.Run(action+" right after the lease was taken costs one run", func(t *testing.T) {
			t.Cleanup(fault.Reset)
			each(t, func(t *testing.T, b *bundle) {
				fault.Reset()
				fault.Arm(fault.JobAfterLease, action)
				var c counted
				r := b.replica(t, Config{}, c.job(nothing)).start(t)
				if run := <-r.runs; run.Err == nil || c.all.Load() != 0 {
					t.Errorf("JobRun.Err = %v with %d runs, want the fault and none", run.Err, c.all.Load())
				}
				b.clock.Add(interval)
				if run := <-r.runs; run.Err != nil || c.all.Load() != 1 {
					t.Errorf("next JobRun.Err = %v with %d runs, want nil and one", run.Err, c.all.Load())
				}
			})
		})
	}
}

func TestSweepFault(t *testing.T) {
	for _, action := range []string{"error", "panic"} {
		t.Run(action+" before a row leaves it to the next run", func(t *testing.T) {
			t.Cleanup(fault.Reset)
			each(t, func(t *testing.T, b *bundle) {
				fault.Reset()
				fault.Arm(fault.SweepBeforeRow, action)
				r, swept := b.sweeper(t, Config{})
				claim(t, r.cfg.Store, "e", "dead")
				b.clock.Add(lease)
				if res, err := r.RunOnce(t.Context(), "sweep"); err == nil || res.Done != 0 {
					t.Errorf("RunOnce = %+v, %v; want the fault", res, err)
				}
				if res, err := r.RunOnce(t.Context(), "sweep"); err != nil || res.Done != 1 || count(swept) != 1 {
					t.Errorf("RunOnce = %+v, %v with %d Swept; want one row", res, err, count(swept))
				}
			})
		})
	}
}
