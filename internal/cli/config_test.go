package cli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"

	"github.com/txmq/txmq"
)

// configFile is a file of settings of this test's own.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "txmq.yaml")
	write(t, path, text)
	return path
}

// inForce is what `txmq config` says, by key.
func inForce(t *testing.T, args ...string) map[string]shownSetting {
	t.Helper()
	r := command(t, "", append([]string{"config", "--output=json"}, args...)...)
	var list []shownSetting
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		t.Fatalf("code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	all := map[string]shownSetting{}
	for _, s := range list {
		all[s.Key] = s
	}
	return all
}

func TestPrecedence(t *testing.T) {
	path := configFile(t, "# jobs\nsweep-every: 2m\ndrain: 10s\n\nprefix: file_\nname-servers: [127.0.0.1:1, 127.0.0.1:2]\naccess-key: 0123\n")
	t.Setenv("TXMQ_DRAIN", "20s")
	t.Setenv("TXMQ_PREFIX", "env_")
	t.Setenv("TXMQ_LOG_LEVEL", "") // as if not set
	all := inForce(t, "--config", path, "--prefix=flag_")
	for _, want := range []shownSetting{
		{"config", path, "--config"},
		{"prefix", "flag_", "--prefix"},
		{"drain", "20s", "$TXMQ_DRAIN"},
		{"sweep-every", "2m0s", path + ":2"},
		{"name-servers", "127.0.0.1:1,127.0.0.1:2", path + ":6"},
		{"access-key", "0123", path + ":7"},
		{"log-level", "info", "default"},
		{"connect-timeout", "5s", "default"},
		{"dsn", "", "default"},
	} {
		if got := all[want.Key]; got != want {
			t.Errorf("%s = %+v, want %+v", want.Key, got, want)
		}
	}
	t.Run("the file may be named by the environment, and the flag wins", func(t *testing.T) {
		other := configFile(t, `{"prefix": "other_", "drain": "1s", "name-servers": ["127.0.0.1:3"]}`)
		t.Setenv("TXMQ_CONFIG", path)
		t.Setenv("TXMQ_PREFIX", "")
		if got := inForce(t)["prefix"]; got != (shownSetting{"prefix", "file_", path + ":5"}) {
			t.Errorf("prefix = %+v", got)
		}
		if got := inForce(t, "--config="+other)["prefix"]; got != (shownSetting{"prefix", "other_", other + ":1"}) {
			t.Errorf("prefix = %+v", got)
		}
	})
	t.Run("what is in force is what is used", func(t *testing.T) {
		dsn := fileDSN(t)
		path := configFile(t, "dsn: "+dsn+"\nprefix: mine_\noutput: json\n")
		if r := command(t, "", "migrate", "up", "--config", path); r.code != exitOK {
			t.Fatal(r.stderr)
		}
		r := command(t, "", "migrate", "status", "--config", path)
		if r.code != exitOK || !strings.Contains(r.stdout, `"applied": true`) {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		t.Setenv("TXMQ_PREFIX", "yours_")
		if r := command(t, "", "migrate", "status", "--config", path); r.code != exitFailure {
			t.Errorf("with another prefix: code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	})
}

func TestHandlerGroups(t *testing.T) {
	const want = "mail=mails,shares=shares-group"
	for name, file := range map[string]string{
		"a mapping":         "handler-group:\n  shares: shares-group\n  mail: mails\n",
		"a mapping in JSON": `{"handler-group": {"shares": "shares-group", "mail": "mails"}}`,
		"a list":            "handler-group: [mail=mails, shares=shares-group]\n",
		"a text":            "handler-group: mail=mails,shares=shares-group\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := inForce(t, "--config", configFile(t, file))["handler-group"].Value; got != want {
				t.Errorf("handler-group = %q, want %q", got, want)
			}
		})
	}
	t.Run("a mapping of one", func(t *testing.T) {
		if got := inForce(t, "--config", configFile(t, "handler-group:\n  shares,old: g\n"))["handler-group"].Value; got != `shares\,old=g` {
			t.Errorf("handler-group = %q", got)
		}
	})
	t.Run("the environment", func(t *testing.T) {
		t.Setenv("TXMQ_HANDLER_GROUP", "shares=shares-group,mail=mails")
		if got := inForce(t)["handler-group"].Value; got != want {
			t.Errorf("handler-group = %q, want %q", got, want)
		}
	})
}

func TestDSNFromTheFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return "sqlite://" + filepath.Join(dir, name) }
	first := filepath.Join(dir, "dsn")
	write(t, first, at("dsnfile"))
	for _, c := range []struct {
		name, env, file string
		args            []string
		want            string
	}{
		{name: "the file's dsn", file: "dsn: " + at("file"), want: "file"},
		{name: "the file's dsn before its dsn-file", file: "dsn: " + at("file") + "\ndsn-file: " + first, want: "file"},
		{name: "the file's dsn-file", file: "dsn-file: " + first, want: "dsnfile"},
		{name: "the flag dsn-file before the file's dsn", file: "dsn: " + at("file"), args: []string{"--dsn-file", first}, want: "dsnfile"},
		{name: "the environment's dsn before the file's", file: "dsn: " + at("file"), env: at("env"), want: "env"},
		{name: "the environment's dsn before the file's dsn-file", file: "dsn-file: " + first, env: at("env"), want: "env"},
		{name: "the flag before the file's", file: "dsn: " + at("file"), args: []string{"--dsn", at("flag")}, want: "flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TXMQ_DSN", c.env)
			args := append([]string{"records", "list", "--config", configFile(t, c.file)}, c.args...)
			r := run(t.Context(), "", args...)
			r.hinted(t, exitFailure) // no such file
			if !strings.Contains(r.stderr, filepath.Join(dir, c.want)+":") {
				t.Errorf("want the database %s: %s", c.want, r.stderr)
			}
		})
	}
	t.Run("config says which of the two counts", func(t *testing.T) {
		all := inForce(t, "--config", configFile(t, "dsn: "+at("file")), "--dsn-file", first)
		if from := all["dsn"].From; !strings.HasSuffix(from, ":1, but dsn-file counts") {
			t.Errorf("dsn is from %q", from)
		}
		if from := all["dsn-file"].From; from != "--dsn-file" {
			t.Errorf("dsn-file is from %q", from)
		}
	})
}

func TestRefusedSettings(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"an unknown key":            {"drain: 1s\ndraim: 1s\n", []string{`txmq.yaml:2: unknown key "draim": nearest is "drain"`}},
		"a key of one call":         {"limit: 5\n", []string{`:1: unknown key "limit"`}},
		"the file itself":           {"config: x\n", []string{`:1: unknown key "config"`}},
		"a key with underscores":    {"log_level: info\n", []string{`nearest is "log-level"`}},
		"a duration without a unit": {"drain: 5\n", []string{`txmq.yaml:1: drain is "5": want a duration such as 30s`}},
		"a word of none":            {"log-format: xml\n", []string{`:1: log-format is "xml": want one of auto, text, json`}},
		"all of them at once":       {"a: 1\nb: 2\ndrain: x\n", []string{":1:", ":2:", ":3:"}},
		"twice":                     {"drain: 1s\nprefix: a\ndrain: 2s\n", []string{":3: drain stands in line 1 already"}},
		"a mapping below":           {"serve:\n  drain: 1s\n", []string{`:1: unknown key "serve"`}},
		"a mapping for a list":      {"name-servers: {a: b}\n", []string{`:1: name-servers is "a mapping"`, "commas"}},
		"a mapping of lists":        {"handler-group:\n  shares: [g1, g2]\n", []string{":1: handler-group has no plain value"}},
		"a name with =":             {"handler-group:\n  a=b: g1\n", []string{":1: handler-group has no plain value"}},
		"nothing behind the colon":  {"drain:\n", []string{":1: drain has no plain value"}},
		"a list of lists":           {"name-servers: [[a]]\n", []string{":1: name-servers has no plain value"}},
		"an anchor":                 {"drain: &a 1s\n", []string{":1: drain has no plain value"}},
		"no mapping":                {"- drain\n", []string{":1: no key with a value"}},
		"a lone word":               {"drain\n", []string{":1: no key with a value"}},
		"two documents":             {"drain: 1s\n---\nprefix: a\n", []string{":3: a second document"}},
		"no YAML":                   {"drain: [1s\n", []string{"txmq.yaml:1: "}},
		"a tab":                     {"drain: 1s\n\tprefix: a\n", []string{"txmq.yaml:2: "}},
	} {
		t.Run(name, func(t *testing.T) {
			// Whichever command it is: none runs on half a file.
			for _, words := range [][]string{{"version"}, {"migrate", "print"}, {"records", "list"}} {
				r := command(t, "", append(words, "--config", configFile(t, c.file))...)
				r.hinted(t, exitUsage)
				for _, want := range c.want {
					if !strings.Contains(r.stderr, want) {
						t.Errorf("%v: want %q: %s", words, want, r.stderr)
					}
				}
			}
		})
	}
	for name, c := range map[string][3]string{
		"an unknown variable": {"TXMQ_DRIAN", "1s", "unknown variable $TXMQ_DRIAN in the environment: nearest is $TXMQ_DRAIN"},
		"one of one call":     {"TXMQ_DRY_RUN", "true", "unknown variable $TXMQ_DRY_RUN"},
		"no duration":         {"TXMQ_CONNECT_TIMEOUT", "soon", `$TXMQ_CONNECT_TIMEOUT is "soon": want a duration such as 30s`},
		"a word of none":      {"TXMQ_OUTPUT", "xml", `$TXMQ_OUTPUT is "xml": want one of table, json`},
		"out of range":        {"TXMQ_DRAIN", "-1s", "$TXMQ_DRAIN is -1s"},
		"no address":          {"TXMQ_NAME_SERVERS", "namesrv:9876", `$TXMQ_NAME_SERVERS is "namesrv:9876": want ip:port`},
		"one key of two":      {"TXMQ_SECRET_KEY", canary, "--access-key is missing: want both keys or neither"},
	} {
		t.Run("environment: "+name, func(t *testing.T) {
			t.Setenv(c[0], c[1])
			r := command(t, "", "serve", "--dsn", fileDSN(t))
			r.hinted(t, exitUsage)
			r.clean(t)
			if !strings.Contains(r.stderr, c[2]) {
				t.Errorf("want %q: %s", c[2], r.stderr)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		r := command(t, "", "version", "--config", filepath.Join(t.TempDir(), "none"))
		r.hinted(t, exitFailure)
		command(t, "", "version", "--config", t.TempDir()).hinted(t, exitFailure)
	})
	t.Run("help needs no good file", func(t *testing.T) {
		t.Setenv("TXMQ_NONE", "x")
		if r := command(t, "", "serve", "--help", "--config=none"); r.code != exitOK || !strings.Contains(r.stdout, "$TXMQ_SWEEP_EVERY") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	for name, text := range map[string]string{"empty": "", "of comments": "# drain: 1s\n", "null": "null\n", "JSON with tabs": "{\n\t\"drain\": \"1s\"\n}\n"} {
		t.Run("accepted: a file that is "+name, func(t *testing.T) {
			if r := command(t, "", "version", "--config", configFile(t, text)); r.code != exitOK {
				t.Errorf("code %d: %s", r.code, r.stderr)
			}
		})
	}
}

func TestForeignVariables(t *testing.T) {
	for name, want := range map[string]bool{
		"TXMQ_TEST_MYSQL": true, "TXMQ_FAULT": true, "TXMQ_FAULT_CHILD": true, "TXMQ_INSTALL": true, "TXMQ_BROKER_OPTS": true,
		"TXMQ_SERVICE_HOST": true, "TXMQ_SERVICE_PORT": true, "TXMQ_SERVICE_PORT_HTTP": true, "TXMQ_PORT": true,
		"TXMQ_PORT_8085_TCP": true, "TXMQ_PORT_8085_TCP_ADDR": true, "TXMQ_JOBS_SERVICE_HOST": true, "TXMQ_JOBS_PORT_80_TCP_PROTO": true,
		"TXMQ_DSM": false, "TXMQ_PORTS": false, "TXMQ_LISTEN_PORT_X": false, "TXMQ_": false, "TXMQ_DRAIN": false,
	} {
		if got := foreign(name); got != want {
			t.Errorf("foreign(%s) = %v, want %v", name, got, want)
		}
	}
}

// Every setting can be given in all three ways and is called the same in all
// commands.
func TestSettings(t *testing.T) {
	root := &commands{}
	parser, err := kong.New(root, kong.Bind(&app{}))
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]setting{}
	for _, s := range settings(parser.Model) {
		first[s.name] = s
		if foreign(s.env()) {
			t.Errorf("$%s is taken for another's", s.env())
		}
		if v := s.flag.Default; v != "" {
			if _, err := s.decode(v); err != nil {
				t.Errorf("%s: default %q: %v", s.name, v, err)
			}
		}
	}
	_ = kong.Visit(parser.Model.Node, func(n kong.Visitable, next kong.Next) error {
		f, ok := n.(*kong.Flag)
		if !ok || f.Name == "help" {
			return next(nil)
		}
		s, known := first[f.Name]
		switch {
		case f.Tag.Has("once") == known:
			t.Errorf("--%s is a setting of one command and an argument of another", f.Name)
		case known && (s.flag.Help != f.Help || s.flag.Default != f.Default || s.flag.Enum != f.Enum):
			t.Errorf("--%s is not the same in all commands", f.Name)
		}
		return next(nil)
	})
	for _, name := range []string{"dsn", "name-servers", "secret-key", "listen", "output"} {
		if first[name].flag == nil {
			t.Errorf("%s is no setting", name)
		}
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	path := configFile(t, "dsn: u:"+canary+"@tcp(127.0.0.1:1)/d?timeout=3s\naccess-key: ak\nsecret-key: "+canary+"\n")
	for _, output := range []string{"table", "json"} {
		r := command(t, "", "config", "--config", path, "--output", output)
		r.clean(t)
		for _, want := range []string{"mysql://u:[secret]@tcp(127.0.0.1:1)/d?", "timeout=3s", "[secret]", "ak"} {
			if r.code != exitOK || !strings.Contains(r.stdout, want) {
				t.Errorf("code %d, want %q:\n%s%s", r.code, want, r.stdout, r.stderr)
			}
		}
	}
	for name, dsn := range map[string]string{
		"no @": "u:" + canary + "/d", "no closing bracket": "u:" + canary + "@tcp(127.0.0.1:1/d", "another scheme": "oracle://u:" + canary + "@h/d",
	} {
		t.Run("a DSN with "+name, func(t *testing.T) {
			t.Setenv("TXMQ_DSN", dsn)
			r := run(t.Context(), "", "config")
			r.clean(t)
			if r.code != exitOK || !strings.Contains(r.stdout, "[secret], which can't be read") {
				t.Errorf("code %d:\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
	good := "mysql://u:" + canary + "@tcp(127.0.0.1:1)/d"
	for name, text := range map[string]string{
		"as a key":           `"` + good + `": x`,
		"as another's value": "drain: " + good,
		"as a lone word":     good,
		"in a broken line":   "dsn: [" + good,
		"as a tag":           "secret-key: !" + canary,
		"as an alias":        "secret-key: *" + canary,
		"as an anchor":       "secret-key: &" + canary,
		"twice":              "secret-key: " + canary + "\nsecret-key: " + canary,
		"unclosed":           `secret-key: "` + canary,
		"as an escape":       `secret-key: "\q` + canary + `"`,
		"as a mapping":       "secret-key: {" + canary + ": x}",
		"behind a directive": "%" + canary + " x\n---\ndrain: 1s",
	} {
		t.Run("a secret in the file "+name, func(t *testing.T) {
			r := command(t, "", "config", "--config", configFile(t, text))
			r.clean(t)
			r.hinted(t, exitUsage)
		})
	}
	t.Run("a DSN in another variable", func(t *testing.T) {
		t.Setenv("TXMQ_DRAIN", good)
		r := command(t, "", "config")
		r.clean(t)
		r.hinted(t, exitUsage)
	})
}

// What the parser quotes may be a secret that stands in the wrong place.
func TestSyntaxErrorsQuoteNothing(t *testing.T) {
	at := token.New("x", "x", &token.Position{Line: 7})
	for message, want := range map[string]string{
		"unexpected map key":                    "txmq.yaml:7: unexpected map key",
		`unknown YAML version "` + canary + `"`: "txmq.yaml:7: no YAML",
	} {
		if err := syntax("txmq.yaml", &yaml.SyntaxError{Message: message, Token: at}); err.Error() != want {
			t.Errorf("syntax(%s) = %v, want %s", message, err, want)
		}
	}
	if err := syntax("txmq.yaml", errors.New(canary)); strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
}

func TestBroker(t *testing.T) {
	a := &app{root: &commands{}, conf: &configuration{}}
	if _, err := a.broker(false); err != nil {
		t.Error(err)
	}
	if _, err := a.broker(true); err == nil || !strings.Contains(err.Error(), "no name server is named") {
		t.Errorf("broker(true) = %v", err)
	}
	a.root = &commands{NameServers: []string{"127.0.0.1:9876", "[::1]:9876"}, AccessKey: "ak", SecretKey: "sk"}
	b, err := a.broker(true)
	if err != nil || len(b.NameServers) != 2 || b.AccessKey != "ak" || b.SecretKey != txmq.Secret("sk") {
		t.Errorf("broker = %+v, %v", b, err)
	}
	for _, ns := range []string{"namesrv:9876", "127.0.0.1", "127.0.0.1:0", "", " "} {
		a.root.NameServers = []string{ns}
		if _, err := a.broker(true); err == nil {
			t.Errorf("broker with name server %q is taken", ns)
		}
	}
}

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"dsm": "dsn", "secrt": "secret-key", "PREFIX": "prefix", "nameservers": "name-servers", "": "dsn"} {
		if got := nearest(word, []string{"dsn", "name-servers", "prefix", "secret-key"}); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "abc", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
