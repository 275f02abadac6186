package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/txmq/txmq"
)

type configCommand struct{ output }

// shownSetting is a row of `txmq config`.
type shownSetting struct {
	Key   string `json:"key"`
	Value string `json:"value"` // "[secret]" for one that is set
	From  string `json:"from"`  // "default", "txmq.yaml:3", "$TXMQ_DRAIN", "--drain"
}

// Run shows every setting, also those of other commands. It opens nothing.
func (c *configCommand) Run(a *app) error {
	all := make([]shownSetting, 0, len(a.conf.list))
	rows := make([][]string, 0, len(a.conf.list))
	for _, s := range a.conf.list {
		row := a.shown(s)
		all = append(all, row)
		rows = append(rows, []string{row.Key, row.Value, row.From})
	}
	return c.write(a.stdout, all, []string{"KEY", "VALUE", "FROM"}, rows)
}

func (a *app) shown(s setting) shownSetting {
	row := shownSetting{Key: s.name, Value: s.flag.Default, From: "default"}
	if g, ok := a.conf.given[s.name]; ok {
		v, _ := s.decode(g.text) // it has been before
		row.Value, row.From = textOf(v.Interface()), g.where
	}
	switch s.name {
	case "dsn":
		row.Value = shownDSN(a.root.DSN)
	case "secret-key":
		row.Value = a.root.SecretKey.String()
	}
	if unused := strings.HasPrefix(s.name, "dsn") && row.Value != "" && a.dsnSetting() != s.name; unused {
		row.From += ", but " + a.dsnSetting() + " counts"
	}
	return row
}

// shownDSN hides all of a DSN that can't be read: where a character is missing,
// the password may stand anywhere.
func shownDSN(dsn txmq.Secret) string {
	if dsn == "" {
		return ""
	}
	s, err := parseDSN(dsn)
	if err != nil {
		return dsn.String() + ", which can't be read: " + err.Error()
	}
	return s.shown()
}

// textOf is a value as the command line, the file and the environment have it.
func textOf(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, name+"="+v[name])
		}
		return kong.JoinEscaped(pairs, ',')
	case txmq.Secret:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}
