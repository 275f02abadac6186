package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestShellBlocksAreReal: what a reader is told to type exists. A line that
// this test does not know is an error, so that a new kind gets a check.
func TestShellBlocksAreReal(t *testing.T) {
	s := newShell(t)
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "sh" {
				continue
			}
			for i, line := range b.lines() {
				if err := s.check(line); err != nil {
					t.Errorf("%s:%d: %s: %v", p.path, b.line+1+i, line, err)
				}
			}
		}
	}
}

// TestShellKnowsWrongLines holds the check itself to its word.
func TestShellKnowsWrongLines(t *testing.T) {
	s := newShell(t)
	for _, line := range []string{
		"make nothing", "scripts/services explode", "scripts/services up oracle", "go test ./no/such/dir",
		"curl example.com", "CI=true make nothing", "env $(scripts/services env) make nothing", "docker compose -f no.yaml up",
		"txmq records retry pay:1 --reason two words",
	} {
		if s.check(line) == nil {
			t.Errorf("check(%q) = nil, want an error", line)
		}
	}
}

type shell struct {
	targets, verbs []string
	cli            func() (string, error) // builds the command once
}

var (
	target  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	service = regexp.MustCompile(`^(mariadb|java|(rocketmq|namesrv)(@(5\.3\.3|5\.5\.0|4\.9\.7))?|rocketmq-acl@(5\.5\.0|4\.9\.7))$`)
	assign  = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=.*$`)
)

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		s.targets = append(s.targets, m[1])
	}
	_, usage, ok := strings.Cut(read(t, "scripts/services"), "scripts/services ")
	if !ok {
		t.Fatal("scripts/services does not say how it is used")
	}
	verbs, _, _ := strings.Cut(usage, " ")
	s.verbs = strings.Split(verbs, "|")
	dir := t.TempDir()
	s.cli = sync.OnceValues(func() (string, error) {
		bin := filepath.Join(dir, "txmq")
		out, err := exec.Command("go", "build", "-o", bin, root+"/cmd/txmq").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return bin, nil
	})
	return s
}

// check says what is wrong with a line.
func (s *shell) check(line string) error {
	line, _, _ = strings.Cut(line, " #")
	line = strings.ReplaceAll(line, "$(scripts/services env)", "A=b")
	return s.command(words(line))
}

var word = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)

// words takes a line apart as a shell does, as far as single quotes go.
func words(line string) (list []string) {
	for _, w := range word.FindAllString(line, -1) {
		list = append(list, strings.ReplaceAll(w, "'", ""))
	}
	return list
}

func (s *shell) command(words []string) error {
	for len(words) > 0 && (assign.MatchString(words[0]) || words[0] == "env" || words[0] == "export") {
		words = words[1:]
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	args := words[1:]
	switch words[0] {
	case "make":
		return each(args, func(a string) error { return oneOf(a, s.targets, "target of the Makefile") })
	case "scripts/services":
		if len(args) == 0 {
			return nil
		}
		if err := oneOf(args[0], s.verbs, "verb of scripts/services"); err != nil {
			return err
		}
		return each(args[1:], func(a string) error {
			if !service.MatchString(a) {
				return fmt.Errorf("no service %s", a)
			}
			return nil
		})
	case "scripts/test", ".ci/run":
		return exists(words[0])
	case "go":
		return s.golang(args)
	case "docker":
		i := slices.Index(args, "-f")
		if i < 0 || i+1 == len(args) {
			return fmt.Errorf("no -f FILE")
		}
		return exists(args[i+1])
	case "txmq":
		return s.txmq(args)
	default:
		return fmt.Errorf("a command that the test does not know")
	}
}

func (s *shell) golang(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("go what?")
	}
	switch args[0] {
	case "get", "install":
		return each(args[1:], func(a string) error {
			path, _, _ := strings.Cut(a, "@")
			rest, ours := strings.CutPrefix(path, "github.com/txmq/txmq")
			if here, ok := strings.CutPrefix(path, "./"); ok {
				rest, ours = "/"+here, true
			}
			if !ours {
				return fmt.Errorf("%s is not of this module", a)
			}
			return exists("." + rest)
		})
	case "test", "run", "vet", "build":
		return each(args[1:], func(a string) error {
			if path, ok := strings.CutPrefix(a, "./"); ok {
				return exists(strings.TrimSuffix(strings.TrimSuffix(path, "..."), "/"))
			}
			return nil
		})
	default:
		return fmt.Errorf("go %s is not known to the test", args[0])
	}
}

// txmq has the real command take the line apart: with --help it runs nothing,
// and fails when there is no such command or flag.
func (s *shell) txmq(args []string) error {
	if exists("cmd/txmq") != nil {
		return fmt.Errorf("cmd/txmq is not here yet; keep it in a text block")
	}
	bin, err := s.cli()
	if err != nil {
		return err
	}
	if out, err := exec.Command(bin, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func each(args []string, check func(string) error) error {
	for _, a := range args {
		if err := check(a); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(word string, known []string, what string) error {
	if !slices.Contains(known, word) {
		return fmt.Errorf("%s is no %s (%s)", word, what, strings.Join(known, ", "))
	}
	return nil
}

func exists(path string) error {
	_, err := os.Stat(filepath.Join(root, path))
	return err
}
