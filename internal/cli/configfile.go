package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// entry is one line of the configuration file: a key, and its value as it is
// written.
type entry struct {
	key, text string
	line      int
	mapping   bool // the text is NAME=VALUE,...
}

// readConfig reads a file of YAML, of which JSON is a part: one mapping, whose
// values are scalars, lists of them or mappings of them. Its errors quote nothing of the file: a
// secret may stand where it is wrong.
func readConfig(path string) ([]entry, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, failed(fmt.Errorf("--config: %w", err), "check the path and its permissions")
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntax(path, err)
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if root != nil && doc.Body != nil {
			return nil, usage(hintFile, "%s:%d: a second document", path, lineOf(doc.Body))
		}
		root = doc.Body
	}
	var pairs []*ast.MappingValueNode
	switch n := root.(type) {
	case nil, *ast.CommentGroupNode, *ast.NullNode:
		return nil, nil
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return nil, usage(hintFile, "%s:%d: no key with a value", path, lineOf(n))
	}
	return entries(path, pairs)
}

const hintFile = "want lines of `key: value`, with the flags' names as keys; see docs/cli.md"

func entries(path string, pairs []*ast.MappingValueNode) ([]entry, error) {
	var list []entry
	var errs []error
	seen := map[string]int{}
	for _, p := range pairs {
		e := entry{line: lineOf(p.Key)}
		var ok bool
		if e.key, ok = scalar(p.Key); !ok {
			errs = append(errs, fmt.Errorf("%s:%d: the key is no word", path, e.line))
			continue
		}
		if first := seen[e.key]; first != 0 {
			errs = append(errs, fmt.Errorf("%s:%d: %s stands in line %d already", path, e.line, e.key, first))
		}
		seen[e.key] = e.line
		if e.text, e.mapping, ok = value(p.Value); !ok {
			errs = append(errs, fmt.Errorf("%s:%d: %s has no plain value: want a word, a number, a list or a mapping of them", path, e.line, e.key))
		}
		list = append(list, e)
	}
	if errs != nil {
		return list, usage(hintFile, "%w", errors.Join(errs...))
	}
	return list, nil
}

// syntax gives what the parser says, unless it may quote the file.
func syntax(path string, err error) error {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return usage(hintFile, "%s is no YAML", path)
	}
	what := at.GetMessage()
	if strings.Contains(what, `"`) {
		what = "no YAML"
	}
	return usage(hintFile, "%s:%d: %s", path, at.GetToken().Position.Line, what)
}

func lineOf(n ast.Node) int { return n.GetToken().Position.Line }

// value is a scalar, or a list or a mapping of them as the command line has it.
func value(n ast.Node) (text string, mapping, ok bool) {
	var texts []string
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, v := range n.Values {
			text, ok := scalar(v)
			if !ok {
				return "", false, false
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ","), false, true
	case *ast.MappingNode:
		for _, pair := range n.Values {
			text, ok := named(pair)
			if !ok {
				return "", false, false
			}
			texts = append(texts, text)
		}
		return kong.JoinEscaped(texts, ','), true, true
	case *ast.MappingValueNode: // a mapping of one
		text, ok := named(n)
		return kong.JoinEscaped([]string{text}, ','), true, ok
	default:
		text, ok := scalar(n)
		return text, false, ok
	}
}

// named is a pair of a mapping as NAME=VALUE.
func named(pair *ast.MappingValueNode) (string, bool) {
	name, ok := scalar(pair.Key)
	text, plain := scalar(pair.Value)
	return name + "=" + text, ok && plain && !strings.Contains(name, "=")
}

// scalar is a scalar as it is written, so that a key of digits keeps its zeros.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return strings.TrimSpace(n.GetToken().Value), true
	default:
		return "", false
	}
}
