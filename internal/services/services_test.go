package services

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLookup(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "bench", "deep")
	if err := os.MkdirAll(filepath.Join(root, ".services"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"go.mod": "module m\n", "bench/go.mod": "module m/bench\n", ".services/env": "# A=0\nA=1=2\nB=3\n",
	} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(deep)
	t.Setenv("A", "")
	t.Setenv("B", "env")
	t.Setenv("C", "")
	for name, want := range map[string]string{"A": "1=2", "B": "env", "C": ""} {
		if got := Lookup(name); got != want {
			t.Errorf("Lookup(%s) = %q, want %q", name, got, want)
		}
	}
}
