package docs

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

var update = flag.Bool("update", false, "write the last column of docs/cases.md from the tests")

// sources are the files of code whose words the pages explain.
func sources(t *testing.T, is func(path string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if strings.HasPrefix(rel, ".") && rel != "." && rel != ".ci" || rel == "bin" || rel == "docs" || rel == "internal/docs" {
				return filepath.SkipDir
			}
			return nil
		}
		if is(rel) {
			found[rel] = read(t, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func isCode(path string) bool {
	return strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".sql") || strings.HasSuffix(path, ".yml") ||
		strings.HasPrefix(path, "scripts/") || path == "Makefile" || path == ".ci/run"
}

var fact = regexp.MustCompile(`\bQ[0-9]{2}\b`)

// TestFactsThatTheCodeNamesAreExplained: Q.. in a comment leads somewhere.
func TestFactsThatTheCodeNamesAreExplained(t *testing.T) {
	text := read(t, "docs/client-facts.md")
	for path, code := range sources(t, isCode) {
		for _, q := range fact.FindAllString(code, -1) {
			if !strings.Contains(text, "| "+q+" |") {
				t.Errorf("%s names %s, which docs/client-facts.md has no row for", path, q)
			}
		}
	}
}

var (
	named   = regexp.MustCompile(`"(B[0-9]{2})[ "]`)
	caseRow = regexp.MustCompile(`^\| (B[0-9]{2}) \| (.*) \| (.*) \|$`)
)

// TestCasesThatTestsNameAreTold: each case has its line, with the packages
// whose tests show it. "go test ./internal/docs -update" writes them.
func TestCasesThatTestsNameAreTold(t *testing.T) {
	shown := map[string]map[string]bool{}
	for path, code := range sources(t, func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		for _, m := range named.FindAllStringSubmatch(code, -1) {
			if shown[m[1]] == nil {
				shown[m[1]] = map[string]bool{}
			}
			shown[m[1]][filepath.ToSlash(filepath.Dir(path))] = true
		}
	}
	where := func(number string) string {
		list := slices.Sorted(maps.Keys(shown[number]))
		if len(list) == 0 {
			return "not yet"
		}
		return strings.Join(list, ", ")
	}
	lines := strings.Split(read(t, "docs/cases.md"), "\n")
	told := map[string]bool{}
	for i, line := range lines {
		m := caseRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		told[m[1]] = true
		if want := where(m[1]); m[3] != want {
			if *update {
				lines[i] = "| " + m[1] + " | " + m[2] + " | " + want + " |"
			} else {
				t.Errorf("docs/cases.md: %s is shown by %q, want %q (go test ./internal/docs -update writes it)", m[1], m[3], want)
			}
		}
	}
	for number := range shown {
		if !told[number] {
			t.Errorf("docs/cases.md has no row for %s, which %s names", number, where(number))
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, "docs/cases.md"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var testName = regexp.MustCompile("`(Test[A-Za-z]+)`")

// TestNamedTestsExist: a page that says "TestX shows it" is right about that.
func TestNamedTestsExist(t *testing.T) {
	code := ""
	for _, text := range sources(t, func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		code += text
	}
	for _, p := range pages(t) {
		for _, m := range testName.FindAllStringSubmatch(p.text, -1) {
			if !strings.Contains(code, "func "+m[1]+"(") {
				t.Errorf("%s: there is no %s", p.path, m[1])
			}
		}
	}
}

var defaultRow = regexp.MustCompile("^\\| `([a-z]+\\.[A-Za-z]+\\.[A-Za-z]+)` \\| ([^|]+) \\|")

// TestDefaultsAreTheCodes: each row of the table names a field whose comment
// says the same default.
func TestDefaultsAreTheCodes(t *testing.T) {
	comments := fieldComments(t)
	rows := 0
	for line := range strings.SplitSeq(read(t, "docs/design.md"), "\n") {
		m := defaultRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows++
		text, ok := comments[m[1]]
		switch want := "Default " + strings.TrimSpace(m[2]); {
		case !ok:
			t.Errorf("docs/design.md: there is no field %s", m[1])
		case !strings.Contains(text, want):
			t.Errorf("docs/design.md: %s is said to be %q; its comment: %s", m[1], want, text)
		}
	}
	if rows < 20 {
		t.Errorf("docs/design.md has %d defaults, it had more", rows)
	}
}

var wireName = regexp.MustCompile(`\bTXMQ_[A-Z]+(_[A-Z]+)*\b`)

// TestWireNamesAreTheCodes: docs/interop.md tells every property and topic of
// ours, and no other.
func TestWireNamesAreTheCodes(t *testing.T) {
	ours := []string{
		txmq.PropertyEventID, txmq.PropertyAttempt, txmq.PropertyDatabaseID,
		txmq.PropertyBorn, txmq.PropertyRedrive, txmq.PropertyShardingKey, rocketmq.HoldTopic,
	}
	text := read(t, "docs/interop.md")
	for _, name := range ours {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/interop.md does not tell of %s", name)
		}
	}
	for _, name := range wireName.FindAllString(text, -1) {
		if !slices.Contains(ours, name) {
			t.Errorf("docs/interop.md tells of %s, which the code does not know", name)
		}
	}
	declared := wireName.FindAllString(read(t, "message.go"), -1)
	for _, name := range declared {
		if !slices.Contains(ours, name) {
			t.Errorf("message.go has %s, which this test does not know", name)
		}
	}
}
