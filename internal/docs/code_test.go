package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

var cutMarker = regexp.MustCompile(`^<!-- cut: ([^#\s]+\.go)#(\S+) -->$`)

// TestGoBlocksAreCutFromCode: each is a region of a file that go build or go
// test compiles.
func TestGoBlocksAreCutFromCode(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" {
				continue
			}
			m := cutMarker.FindStringSubmatch(b.marker)
			if m == nil {
				t.Errorf("%s:%d: the line before a go block must be <!-- cut: path.go#region -->, is %q", p.path, b.line, b.marker)
				continue
			}
			shown[m[1]+"#"+m[2]] = true
			want, err := region(m[1], m[2])
			if err != nil {
				t.Errorf("%s:%d: %v", p.path, b.line, err)
			} else if b.text != want {
				t.Errorf("%s:%d: not what stands in %s#%s:\n%s", p.path, b.line, m[1], m[2], want)
			}
		}
	}
	for _, name := range []string{"producer", "send"} {
		if !shown["examples/readme/send.go#"+name] {
			t.Errorf("examples/readme/send.go#%s is shown on no page", name)
		}
	}
	for _, name := range []string{"consumer", "consume"} {
		if !shown["examples/readme/consume.go#"+name] {
			t.Errorf("examples/readme/consume.go#%s is shown on no page", name)
		}
	}
}

// region cuts what stands between "// region NAME" and "// endregion", without
// the indentation that all its lines have.
func region(path, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return "", err
	}
	if strings.Contains(path, "testdata") || strings.Contains(string(text), "\n//go:build") || strings.HasPrefix(string(text), "//go:build") {
		return "", fmt.Errorf("%s is not compiled everywhere", path)
	}
	var lines []string
	inside, closed := false, false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch at := strings.TrimSpace(line); {
		case at == "// region "+name:
			inside = true
		case inside && at == "// endregion":
			inside, closed = false, true
		case inside:
			lines = append(lines, line)
		}
	}
	if !closed {
		return "", fmt.Errorf("%s has no closed region %s", path, name)
	}
	for len(lines) > 0 && indented(lines) {
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "\t")
		}
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n", nil
}

func indented(lines []string) bool {
	some := false
	for _, l := range lines {
		if l != "" && l[0] != '\t' {
			return false
		}
		some = some || l != ""
	}
	return some
}

// TestSQLBlocksRun: each is part of what migrate print gives, or runs on a
// migrated SQLite database.
func TestSQLBlocksRun(t *testing.T) {
	db := migrated(t)
	var printed []string
	for _, dialect := range []string{"mysql", "sqlite"} {
		text, err := model.Print(dialect, model.Config{})
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, squeeze(text))
	}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "sql" || strings.Contains(printed[0], squeeze(b.text)) || strings.Contains(printed[1], squeeze(b.text)) {
				continue
			}
			for statement := range strings.SplitSeq(b.text, ";") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if err := db.Exec(statement).Error; err != nil {
					t.Errorf("%s:%d: %v in:\n%s", p.path, b.line, err, statement)
				}
			}
		}
	}
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func migrated(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(sqlite.Open(testenv.SQLite(t)), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if _, err := model.Migrate(t.Context(), db, model.Config{}); err != nil {
		t.Fatal(err)
	}
	return db
}
