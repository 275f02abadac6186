package cli

import (
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// flagOf are the fields of the packages beneath that a flag sets, as their
// errors call them. A longer one stands before a shorter one that it begins with.
var flagOf = strings.NewReplacer(
	"jobs.Config.Compensate.Stale", "--stale",
	"jobs.Config.Compensate.Every", "--compensate-every",
	"jobs.Config.Sweep.Every", "--sweep-every",
	"jobs.Config.Drain", "--drain",
	"jobs.Config.Broker.NameServers", "--name-servers",
	"jobs.Config.Broker.AccessKey", "--access-key",
	"jobs.Config.Broker.SecretKey", "--secret-key",
	"jobs.Config.Broker", "--name-servers",
	"model.Config.Prefix", "--prefix",
	"model.MigrateDown version", "--to",
	"model.AdoptConfig.Table", "--table",
	"model.AdoptConfig.Zone", "--zone",
	"model.AdoptConfig.Map", "--map ",
	"model.By.Actor", "--actor",
	"model.By.Reason", "--reason",
)

var (
	ofHandler = regexp.MustCompile(`jobs\.Config\.Groups(\[("(?:[^"\\]|\\.)*")\]| key)`)
	ofQueue   = regexp.MustCompile(`jobs\.Config\.DeadLetters\[\d+\]\.Group`)
)

// inFlags says what an error says of fields in the words of the command line.
func inFlags(text string) string {
	text = ofHandler.ReplaceAllString(text, "--handler-group $2")
	text = ofQueue.ReplaceAllString(text, "--dead-letters")
	return flagOf.Replace(strings.ReplaceAll(text, "--handler-group  is", "--handler-group is"))
}

// helpFor is the call that explains the command that was meant.
func helpFor(parsed *kong.Context) string {
	words := []string{"txmq"}
	if parsed != nil {
		for _, p := range parsed.Path {
			if p.Command != nil {
				words = append(words, p.Command.Name)
			}
		}
	}
	return "see `" + strings.Join(words, " ") + " --help`"
}
