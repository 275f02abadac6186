//go:build !txmq_fault

package fault_test

import (
	"testing"

	"github.com/txmq/txmq/internal/fault"
)

func TestPointIsNothing(t *testing.T) {
	t.Setenv("TXMQ_FAULT", string(fault.SendAfterHalf)+"=kill")
	if fault.Enabled {
		t.Error("Enabled = true without the tag")
	}
	for _, name := range fault.All() {
		if err := fault.Point(name); err != nil {
			t.Errorf("Point(%s) = %v, want nil", name, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = fault.Point(fault.CheckBefore) }); n != 0 {
		t.Errorf("Point allocates %v times, want 0", n)
	}
}
