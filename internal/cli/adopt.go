package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

type migrateAdopt struct {
	output
	Table  string   `once:"" required:"" placeholder:"NAME" help:"The table, with columns event_id, consumer and status at least."`
	Map    []string `once:"" placeholder:"OLD=NEW" help:"What its states mean, with commas between: 0=PROCESSING,1=SUCCESS,2=FAIL,X=DEAD. Words such as SUCCESS, FAILED, CONSUMING need none; numbers do."`
	Zone   string   `once:"" default:"+00:00" help:"The offset that its DATETIME columns are written in, such as +08:00."`
	Apply  bool     `once:"" xor:"apply" help:"Do it. Stop its consumers before."`
	DryRun bool     `once:"" xor:"apply" help:"Only say what would be done, as without --apply."`
}

// Run says how the table becomes txmq's, and with --apply makes it so.
func (c *migrateAdopt) Run(ctx context.Context, a *app) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	db, closeDB, err := a.open(ctx, refuse)
	if err != nil {
		return err
	}
	defer closeDB()
	do := model.PlanAdopt
	if c.Apply {
		do = model.Adopt
	}
	plan, err := do(ctx, db, a.config(), cfg)
	if err != nil && len(plan.Problems) == 0 {
		return adoptError(err, plan)
	}
	if err := c.print(a.stdout, plan); err != nil {
		return err
	}
	if n := len(plan.Problems); n > 0 {
		return failed(fmt.Errorf("%d problems keep %s from being adopted; nothing was changed", n, plan.Table), "the way out of each stands beside it")
	}
	if !c.Apply {
		_, err = fmt.Fprintln(a.stderr, "nothing was changed; stop the consumers of "+plan.Table+", and repeat it with --apply")
		return err
	}
	_, err = fmt.Fprintf(a.stderr, "adopted: %d rows of %s are in %s; the old table is %s\n", plan.Rows, plan.Table, plan.Ours, plan.Kept)
	return err
}

func (c *migrateAdopt) config() (model.AdoptConfig, error) {
	cfg := model.AdoptConfig{Table: c.Table, Zone: c.Zone, Map: map[string]model.Status{}}
	for _, pair := range c.Map {
		i := strings.LastIndex(pair, "=")
		if i < 0 {
			return cfg, usage("want OLD=PROCESSING, SUCCESS, FAIL or DEAD", "--map has %q", pair)
		}
		cfg.Map[pair[:i]] = model.Status(strings.ToUpper(pair[i+1:]))
	}
	return cfg, nil
}

// adoptError gives an error its way out, and a field the name of its flag.
func adoptError(err error, p model.Adoption) error {
	var stopped *model.AdoptError
	var schema *txmq.SchemaError
	var field *txmq.FieldError
	switch {
	case errors.As(err, &stopped) && !errors.As(err, &schema):
		back := "RENAME TABLE " + p.Kept + " TO " + p.Table
		if p.Table == p.Ours {
			back = "`txmq migrate down --to 0`, then " + back
		}
		return failed(err, "run it again: it goes on from there; the way back, before any consumer has run: "+back)
	case errors.As(err, &field):
		return usage("see `txmq migrate adopt --help`", "%w", err)
	default:
		return err
	}
}

// adoptProblem is a problem in JSON.
type adoptProblem struct {
	Problem string `json:"problem"`
	Hint    string `json:"hint"`
}

func (c *migrateAdopt) print(w io.Writer, p model.Adoption) error {
	if c.Output == "json" {
		problems := make([]adoptProblem, 0, len(p.Problems))
		for _, e := range p.Problems {
			problems = append(problems, adoptProblem{e.Problem, e.Hint})
		}
		return writeJSON(w, struct {
			model.Adoption
			Problems []adoptProblem `json:"problems"`
		}{p, problems})
	}
	for _, part := range adoptTables(p) {
		if len(part) == 1 {
			continue
		}
		if err := writeTable(w, part[0], part[1:]); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, adoptText(p))
	return err
}

// adoptTables are the parts of the report, each with its header.
func adoptTables(p model.Adoption) [][][]string {
	about := [][]string{{"TABLE", "ENGINE", "ROWS", "KEPT AS", "ROWS GO TO"}, {p.Table, p.Engine, fmt.Sprint(p.Rows), p.Kept, p.Ours}}
	columns := [][]string{{"COLUMN", "NOW", "TXMQ'S"}}
	for _, ch := range p.Changes {
		columns = append(columns, []string{ch.Name, cmp.Or(ch.Theirs, "(none)"), cmp.Or(ch.Ours, "(stays in "+p.Kept+")")})
	}
	states := [][]string{{"STATE", "ROWS", "MEANS", "BECOMES"}}
	for _, st := range p.States {
		means, becomes := string(st.Means), string(st.Becomes)
		if st.Assumed {
			means, becomes = means+"?", becomes+"?"
		}
		states = append(states, []string{st.Old, fmt.Sprint(st.Rows), cmp.Or(means, "?"), cmp.Or(becomes, "?")})
	}
	consumers := [][]string{{"CONSUMER", "ROWS", "HANDLER"}}
	for _, h := range p.Consumers {
		consumers = append(consumers, []string{h.Name, fmt.Sprint(h.Rows), fmt.Sprintf("goes on as consumer.Handler{Name: %q}", h.Name)})
	}
	return [][][]string{about, columns, states, consumers}
}

func adoptText(p model.Adoption) string {
	var b strings.Builder
	if p.Begun {
		fmt.Fprintf(&b, "an earlier run was cut off: %s is renamed already, and what is missing is copied\n", p.Table)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, e := range p.Problems {
		fmt.Fprintf(&b, "problem: %s\n  way out: %s\n", e.Problem, e.Hint)
	}
	if p.Alter != "" {
		fmt.Fprintf(&b, "\n-- in place, this would make its columns txmq's; --apply copies instead:\n%s;\n", p.Alter)
	}
	if p.Run != nil {
		b.WriteString("\n-- --apply runs, the last for each chunk of the primary key:\n")
	}
	for _, sql := range p.Run {
		fmt.Fprintf(&b, "%s;\n", strings.TrimSuffix(sql, ";"))
	}
	return b.String()
}
