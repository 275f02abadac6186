package cli

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// setting is a flag that the configuration file and the environment may give as
// well. All are, but for those tagged once: the arguments of a single call.
type setting struct {
	name string
	flag *kong.Flag // the first, where several commands have one of that name
}

// configName names the file itself: a setting that can't stand in the file.
const configName = "config"

func (s setting) env() string { return "TXMQ_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_")) }

// settings are those of all commands, in the order of the help.
func settings(app *kong.Application) []setting {
	var list []setting
	seen := map[string]bool{"help": true}
	_ = kong.Visit(app.Node, func(n kong.Visitable, next kong.Next) error { // no visit fails
		if f, ok := n.(*kong.Flag); ok && !seen[f.Name] && !f.Tag.Has("once") {
			seen[f.Name] = true
			list = append(list, setting{f.Name, f})
		}
		return next(nil)
	})
	return list
}

func names(list []setting, name func(setting) string) []string {
	all := make([]string, 0, len(list))
	for _, s := range list {
		all = append(all, name(s))
	}
	return all
}

// decode reads a value as the command line would.
func (s setting) decode(text string) (reflect.Value, error) {
	v := reflect.New(s.flag.Target.Type()).Elem()
	scan := kong.Scan().PushTyped(text, kong.FlagValueToken)
	err := s.flag.Mapper.Decode(&kong.DecodeContext{Value: s.flag.Value, Scan: scan}, v)
	if err == nil && s.flag.Enum != "" && !s.flag.EnumMap()[text] {
		err = fmt.Errorf("none of %s", s.flag.Enum)
	}
	return v, err
}

// want says what a value has to look like.
func (s setting) want() string {
	switch {
	case s.flag.Enum != "":
		return "one of " + strings.ReplaceAll(s.flag.Enum, ",", ", ")
	case s.flag.Target.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s"
	case s.flag.Target.Kind() == reflect.Slice:
		return "values with commas between them"
	case s.flag.Target.Kind() == reflect.Map:
		return "NAME=VALUE with commas between them, or in the file a mapping"
	case s.flag.Target.CanInt():
		return "a whole number"
	default:
		return "a text"
	}
}

// helpOf is a flag's help with its variable.
func helpOf(v *kong.Value) string {
	if v.Flag == nil || v.Name == "help" || v.Tag.Has("once") {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " ($" + setting{name: v.Name}.env() + ")."
}

// kubernetes are the variables that a cluster sets in every container for a
// Service whose name begins with txmq.
var kubernetes = regexp.MustCompile(`^TXMQ_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// spared are what the names start with that txmq's own tests and scripts use;
// the command has no setting of such a name.
var spared = []string{
	"TXMQ_TEST_", "TXMQ_FAULT", "TXMQ_E2E", "TXMQ_SOAK", "TXMQ_BENCH", "TXMQ_CHAOS",
	"TXMQ_INSTALL", "TXMQ_SERVICES_", "TXMQ_BROKER_",
}

// foreign tells a variable TXMQ_... that is nobody's business here.
func foreign(name string) bool {
	for _, start := range spared {
		if strings.HasPrefix(name, start) {
			return true
		}
	}
	return kubernetes.MatchString(name)
}

// nearest is the known word with the fewest letters to change, for its length.
func nearest(word string, known []string) string {
	best, least := "", 2.0
	for _, k := range known {
		d := float64(distance(strings.ToLower(word), strings.ToLower(k))) / float64(max(len(word), len(k)))
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's, byte by byte.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
