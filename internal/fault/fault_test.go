package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestAllListsEveryPointOnce(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			declared += len(v.Names)
		}
		return true
	})
	seen := map[fault.Name]bool{}
	for _, name := range fault.All() {
		if seen[name] || !strings.HasPrefix(string(name), "fault:") || strings.ContainsAny(string(name), "=,@ ") {
			t.Errorf("%q is there twice, or can't stand in %s", name, "TXMQ_FAULT")
		}
		seen[name] = true
	}
	if len(seen) != declared {
		t.Errorf("All has %d points, declared are %d", len(seen), declared)
	}
}
