package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notPublic are folders that nobody imports.
var notPublic = []string{"internal", "examples", "test", "bench", "cmd", "scripts", "deploy", "docs", "bin"}

// publicPackages are the folders of packages that a service can import.
func publicPackages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(rel, ".") && rel != "." || slices.Contains(notPublic, rel) {
			return filepath.SkipDir
		}
		if len(goFiles(t, rel, false)) > 0 {
			dirs = append(dirs, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(dirs, ".") || !slices.Contains(dirs, "producer") {
		t.Fatalf("public packages are %v, some are missing", dirs)
	}
	return dirs
}

func goFiles(t *testing.T, dir string, tests bool) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, "_test.go") != tests })
}

func parseAll(t *testing.T, names []string) (*token.FileSet, []*ast.File) {
	t.Helper()
	set := token.NewFileSet()
	files := make([]*ast.File, 0, len(names))
	for _, n := range names {
		f, err := parser.ParseFile(set, n, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return set, files
}

func documented(t *testing.T, dir string) *doc.Package {
	t.Helper()
	set, files := parseAll(t, goFiles(t, dir, false))
	p, err := doc.NewFromFiles(set, files, "github.com/txmq/txmq/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestExportedNamesAreDocumented lists those without a comment.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, dir := range publicPackages(t) {
		p := documented(t, dir)
		for _, name := range undocumented(p) {
			t.Errorf("%s: %s has no comment", dir, name)
		}
	}
}

func undocumented(p *doc.Package) (names []string) {
	need := func(name, text string) {
		if strings.TrimSpace(text) == "" {
			names = append(names, name)
		}
	}
	need("package "+p.Name, p.Doc)
	values := func(list []*doc.Value) {
		for _, v := range list {
			for _, spec := range v.Decl.Specs {
				s, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for _, n := range s.Names {
					if n.IsExported() {
						need(n.Name, v.Doc+s.Doc.Text()+s.Comment.Text())
					}
				}
			}
		}
	}
	funcs := func(of string, list []*doc.Func) {
		for _, f := range list {
			need(of+f.Name, f.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs("", p.Funcs)
	for _, typ := range p.Types {
		need(typ.Name, typ.Doc)
		values(typ.Consts)
		values(typ.Vars)
		funcs("", typ.Funcs)
		funcs(typ.Name+".", typ.Methods)
	}
	return names
}

// TestConstructorsHaveExamples: each New... has an Example with an Output, so
// it runs without a server.
func TestConstructorsHaveExamples(t *testing.T) {
	for _, dir := range publicPackages(t) {
		_, files := parseAll(t, goFiles(t, dir, true))
		shown := map[string]bool{}
		for _, e := range doc.Examples(files...) {
			name, _, _ := strings.Cut(e.Name, "_")
			if e.Output != "" {
				shown[name] = true
			}
		}
		for _, name := range constructors(documented(t, dir)) {
			if !shown[name] {
				t.Errorf("%s: %s has no Example%s with an Output", dir, name, name)
			}
		}
	}
}

func constructors(p *doc.Package) (names []string) {
	all := slices.Clone(p.Funcs)
	for _, typ := range p.Types {
		all = append(all, typ.Funcs...)
	}
	for _, f := range all {
		if strings.HasPrefix(f.Name, "New") {
			names = append(names, f.Name)
		}
	}
	return names
}

// comments of the fields of the public structs, by "package.Type.Field".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range publicPackages(t) {
		_, files := parseAll(t, goFiles(t, dir, false))
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				typ, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if s, ok := typ.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							found[fmt.Sprintf("%s.%s.%s", f.Name.Name, typ.Name.Name, name.Name)] = squeeze(field.Doc.Text() + " " + field.Comment.Text())
						}
					}
				}
				return true
			})
		}
	}
	return found
}
