package cli

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "write the tables of docs/cli.md from the commands")

const page = "../../docs/cli.md"

func application(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("txmq"), kong.Bind(&app{}))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

// TestPageIsCurrent: the tables of docs/cli.md are those of the commands.
// "go test ./internal/cli -update" writes them.
func TestPageIsCurrent(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	app := application(t)
	want := between(t, string(text), "commands", commandTable(app))
	want = between(t, want, "settings", settingTable(app))
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatal("docs/cli.md is not what the commands say: go test ./internal/cli -update")
	}
	if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// between puts a table between a marker and the next end.
func between(t *testing.T, text, marker, table string) string {
	t.Helper()
	start := "<!-- " + marker + " -->\n"
	before, rest, ok := strings.Cut(text, start)
	_, after, closed := strings.Cut(rest, "<!-- end -->")
	if !ok || !closed {
		t.Fatalf("docs/cli.md has no place for %s", marker)
	}
	return before + start + table + "<!-- end -->" + after
}

func commandTable(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("| command | arguments of one call | what |\n|---|---|---|\n")
	for _, leaf := range app.Leaves(true) {
		var args []string
		for _, p := range leaf.Positional {
			args = append(args, "`"+p.Summary()+"`")
		}
		for _, group := range leaf.AllFlags(true) {
			for _, f := range group {
				if f.Tag.Has("once") {
					args = append(args, "`"+f.Summary()+"`")
				}
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimSpace(leaf.FullPath()), cell(strings.Join(args, ", ")), cell(leaf.Help))
	}
	return b.String()
}

func settingTable(app *kong.Application) string {
	var b strings.Builder
	b.WriteString("| key | variable | default | what |\n|---|---|---|---|\n")
	for _, s := range settings(app) {
		key := "`" + s.name + "`"
		if s.name == configName {
			key = "(`--config`)"
		}
		what := s.flag.Help
		if s.name == "dsn" {
			what = "The database: mysql://user:password@tcp(host:port)/database or sqlite:///path."
		}
		preset := ""
		if s.flag.Default != "" {
			preset = "`" + s.flag.Default + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", key, s.env(), preset, cell(what))
	}
	return b.String()
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// TestEveryWriteHasADryRun: so that who is careful can look first.
func TestEveryWriteHasADryRun(t *testing.T) {
	reads := []string{"migrate status", "migrate print", "records list", "records show", "audit", "serve", "config", "version"}
	for _, leaf := range application(t).Leaves(true) {
		name := strings.TrimPrefix(leaf.FullPath(), "txmq ")
		dry := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "dry-run" })
		if dry == slices.Contains(reads, name) {
			t.Errorf("%s: --dry-run %v", name, dry)
		}
	}
}

var (
	inShell = regexp.MustCompile(`\b(TXMQ_[A-Z0-9_]+)`)
	inGo    = regexp.MustCompile(`(?:[sS]etenv|[gG]etenv|LookupEnv|lookup|need)\((?:tb, )?"(TXMQ_[A-Z0-9_]+)|"(TXMQ_[A-Z0-9_]+)=`)
)

// TestVariablesOfOthers: each name TXMQ_... that this repository's scripts and
// tests hand to a process is a setting, or let be by the command.
func TestVariablesOfOthers(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "Makefile", ".ci", "scripts", "*.go").Output()
	if err != nil {
		t.Skipf("no checkout: %v", err)
	}
	known := names(settings(application(t)), setting.env)
	found := 0
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		rule := inShell
		if strings.HasSuffix(path, ".go") {
			rule = inGo
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil || strings.HasPrefix(path, "internal/cli/") {
			continue // removed, or this package's own bad examples
		}
		for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
			found++
			name := strings.Join(m[1:], "") // one of them is empty
			if !foreign(name) && !slices.Contains(known, name) {
				t.Errorf("%s: %s would be refused by every txmq that inherits it: add it to spared in settings.go", path, name)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d variables, there are more", found)
	}
}
