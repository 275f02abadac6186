package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/txmq/txmq"
)

// UnknownKeyError is a line of the configuration file, or a variable of the
// environment, that no setting has the name of.
type UnknownKeyError struct {
	File    string // empty for a variable
	Line    int
	Key     string
	Nearest string // the known name that is most alike
}

// Error says where the key stands and which one may be meant.
func (e *UnknownKeyError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("unknown variable $%s in the environment: nearest is $%s", e.Key, e.Nearest)
	}
	return fmt.Sprintf("%s:%d: unknown key %q: nearest is %q", e.File, e.Line, e.Key, e.Nearest)
}

// origin says who gave a setting its value.
type origin uint8

const (
	fromDefault origin = iota
	fromFile
	fromEnv
	fromFlag
)

// given is a setting's value before it is decoded.
type given struct {
	text  string
	from  origin
	where string // "txmq.yaml:3", "$TXMQ_DRAIN", "--drain"
}

// configuration is what file and environment say, as kong's resolver: it asks
// for what the command line leaves open.
type configuration struct {
	list  []setting
	given map[string]given
	texts []string // all values, so that none of them gets into an error as a DSN
}

// BeforeResolve is called by kong once the words of the command line are known.
// What it refuses is refused whichever command it is for.
func (c *commands) BeforeResolve(ctx *kong.Context, a *app) error {
	a.conf = &configuration{list: settings(ctx.Model), given: map[string]given{}}
	ctx.AddResolver(a.conf)
	path := os.Getenv(setting{name: configName}.env())
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == configName {
			path, _ = ctx.FlagValue(p.Flag).(string)
		}
	}
	var errs []error
	if path != "" {
		found, err := readConfig(path)
		errs = append(errs, err, a.conf.file(path, found))
	}
	errs = append(errs, a.conf.environment(os.Environ()))
	err := errors.Join(errs...)
	var unknown *UnknownKeyError
	var field *txmq.FieldError
	if errors.As(err, &unknown) || errors.As(err, &field) {
		return usage("`txmq config` lists what can be set; see docs/cli.md", "%w", err)
	}
	return err
}

func (c *configuration) file(path string, found []entry) error {
	var errs []error
	known := slices.DeleteFunc(names(c.list, func(s setting) string { return s.name }), func(n string) bool { return n == configName })
	for _, e := range found {
		c.texts = append(c.texts, e.key, e.text)
		i := slices.IndexFunc(c.list, func(s setting) bool { return s.name == e.key && e.key != configName })
		if i < 0 {
			errs = append(errs, &UnknownKeyError{File: path, Line: e.line, Key: e.key, Nearest: nearest(e.key, known)})
			continue
		}
		at := fmt.Sprintf("%s:%d", path, e.line)
		if s := c.list[i]; e.mapping && s.flag.Target.Kind() != reflect.Map {
			errs = append(errs, &txmq.FieldError{Field: at + ": " + e.key, Value: "a mapping", Want: s.want()})
			continue
		}
		errs = append(errs, c.put(c.list[i], given{e.text, fromFile, at}, at+": "+e.key))
	}
	return errors.Join(errs...)
}

func (c *configuration) environment(environ []string) error {
	var errs []error
	slices.Sort(environ)
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "TXMQ_") || foreign(name) {
			continue
		}
		c.texts = append(c.texts, text)
		i := slices.IndexFunc(c.list, func(s setting) bool { return s.env() == name })
		if i < 0 {
			errs = append(errs, &UnknownKeyError{Key: name, Nearest: nearest(name, names(c.list, setting.env))})
			continue
		}
		errs = append(errs, c.put(c.list[i], given{text, fromEnv, "$" + name}, "$"+name))
	}
	return errors.Join(errs...)
}

// put takes a value if it can be decoded. An empty one is as if not given.
func (c *configuration) put(s setting, g given, called string) error {
	if g.text == "" {
		return nil
	}
	if _, err := s.decode(g.text); err != nil {
		return &txmq.FieldError{Field: called, Value: g.text, Want: s.want()}
	}
	c.given[s.name] = g
	return nil
}

// Resolve is kong's: the value of a flag that the command line does not have.
func (c *configuration) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if g, ok := c.given[flag.Name]; ok && !flag.Tag.Has("once") {
		return g.text, nil
	}
	return nil, nil
}

// Validate is kong's: nothing is left to be said.
func (c *configuration) Validate(*kong.Application) error { return nil }

// flags notes what the command line gave.
func (c *configuration) flags(ctx *kong.Context) {
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && !p.Flag.Tag.Has("once") {
			c.given[p.Flag.Name] = given{textOf(ctx.FlagValue(p.Flag)), fromFlag, "--" + p.Flag.Name}
		}
	}
}

// called is a setting by the name that the user gave it: "--drain",
// "$TXMQ_DRAIN", "txmq.yaml:3: drain".
func (a *app) called(name string) string {
	switch g := a.conf.given[name]; g.from {
	case fromFile:
		return g.where + ": " + name
	case fromEnv:
		return g.where
	case fromDefault, fromFlag:
	}
	return "--" + name
}

// from says who gave a setting its value.
func (a *app) from(name string) origin { return a.conf.given[name].from }
