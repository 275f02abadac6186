package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// root is the repository's, seen from this package.
const root = "../.."

// page is a Markdown file, by its path from the root.
type page struct {
	path   string
	text   string
	blocks []block
}

// block is one fenced code block.
type block struct {
	lang   string
	text   string // without the fences
	line   int    // of the opening fence
	marker string // the line before it, spaces taken off
}

func (b block) lines() []string {
	if b.text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(b.text, "\n"), "\n")
}

// pages are all *.md in the root and below docs/.
func pages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 10 {
		t.Fatalf("found %d pages, there are more: %v", len(paths), paths)
	}
	list := make([]page, 0, len(paths))
	for _, path := range paths {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, parse(t, filepath.ToSlash(rel), read(t, rel)))
	}
	return list
}

// read gives a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t *testing.T, path, text string) page {
	t.Helper()
	p := page{path: path, text: text}
	var open *block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			open = &block{lang: strings.TrimPrefix(strings.TrimSpace(line), "```"), line: i + 1, marker: strings.TrimSpace(before)}
		case fence:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
		before = line
	}
	if open != nil {
		t.Errorf("%s:%d: the block is not closed", path, open.line)
	}
	return p
}

// prose is the page without its code blocks.
func (p page) prose() string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(p.text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestBlocksHaveALanguage(t *testing.T) {
	known := map[string]bool{"go": true, "sh": true, "sql": true, "text": true}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if !known[b.lang] {
				t.Errorf("%s:%d: block of language %q, want go, sh, sql or text", p.path, b.line, b.lang)
			}
		}
	}
}

var link = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)

func TestLinksResolve(t *testing.T) {
	all := pages(t)
	headings := map[string]map[string]bool{}
	for _, p := range all {
		headings[p.path] = anchors(p)
	}
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := p.path
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil || strings.HasPrefix(target, "..") {
				t.Errorf("%s: link to %s, which is not here", p.path, m[1])
				continue
			}
			if anchor != "" && !headings[target][anchor] {
				t.Errorf("%s: link to %s: no such heading", p.path, m[1])
			}
		}
	}
}

// anchors are the names that a forge gives the headings of a page.
func anchors(p page) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(p.prose()) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(title))
		found[name] = true
	}
	return found
}

// TestPagesStandAlone: whoever has the repository has all that it speaks of.
func TestPagesStandAlone(t *testing.T) {
	for _, p := range pages(t) {
		for i, line := range strings.Split(p.text, "\n") {
			for _, no := range []string{"/root/", "/home/", "/Users/", "file://"} {
				if strings.Contains(line, no) {
					t.Errorf("%s:%d: points to %q", p.path, i+1, no)
				}
			}
		}
	}
}

// TestReadmesHaveTheSameCode: the Chinese page is the same page.
func TestReadmesHaveTheSameCode(t *testing.T) {
	en := parse(t, "README.md", read(t, "README.md"))
	zh := parse(t, "README.zh-CN.md", read(t, "README.zh-CN.md"))
	code := func(p page) (list []block) {
		for _, b := range p.blocks {
			if b.lang != "text" {
				list = append(list, b)
			}
		}
		return list
	}
	a, b := code(en), code(zh)
	if len(a) != len(b) {
		t.Fatalf("README.md has %d code blocks, README.zh-CN.md %d", len(a), len(b))
	}
	for i := range a {
		if a[i].text != b[i].text || a[i].lang != b[i].lang {
			t.Errorf("block at README.md:%d is not the one at README.zh-CN.md:%d", a[i].line, b[i].line)
		}
	}
}
