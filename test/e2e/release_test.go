package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/txmq/txmq/internal/fault"
)

// pointNames says which fault points are named in a binary.
func pointNames(t *testing.T, bin string) (found []fault.Name) {
	t.Helper()
	text, err := os.ReadFile(bin)
	must(t, err)
	for _, name := range fault.All() {
		if bytes.Contains(text, []byte(name)) {
			found = append(found, name)
		}
	}
	return found
}

func TestReleaseBinary(t *testing.T) {
	t.Parallel()
	t.Run("the worker, which links every part", func(t *testing.T) {
		t.Parallel()
		if found := pointNames(t, build(t, workerPkg)); found != nil {
			t.Errorf("without the tag the binary names %v", found)
		}
		if found := pointNames(t, build(t, workerPkg, faultTag)); len(found) != len(fault.All()) {
			t.Errorf("with the tag the binary names %v, want all %d", found, len(fault.All()))
		}
	})

	t.Run("the command", func(t *testing.T) {
		t.Parallel()
		const pkg = "github.com/txmq/txmq/cmd/txmq"
		if _, err := os.Stat(filepath.Join("..", "..", "cmd", "txmq")); err != nil {
			t.Skip("cmd/txmq is not there yet")
		}
		if found := pointNames(t, build(t, pkg)); found != nil {
			t.Errorf("without the tag the binary names %v", found)
		}
		if found := pointNames(t, build(t, pkg, faultTag)); found == nil {
			t.Error("with the tag the binary names no point, so this test shows nothing")
		}
	})
}
