package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDryRunOfANewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.db")
	r := command(t, "", "migrate", "up", "--dry-run", "--dsn=sqlite://"+path)
	if r.code != exitOK || !strings.Contains(r.stdout, "would apply 00001_init.sql") || !strings.Contains(r.stdout, "CREATE TABLE") {
		t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the dry run made the file: %v", err)
	}
	r = command(t, "", "migrate", "up", "--dry-run", "--dsn=sqlite://"+filepath.Join(path, "below", "none.db"))
	r.hinted(t, exitFailure)
}
