package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"gorm.io/gorm"

	"github.com/txmq/txmq/model"
)

type migrateDown struct {
	To     *int64 `once:"" placeholder:"VERSION" help:"Down to this version; 0 drops every table. Default: one step."`
	Yes    bool   `once:"" help:"Do not ask. Needed where there is no terminal to ask on."`
	DryRun bool   `once:"" help:"Say what would be done and lost, and do nothing."`
}

// Run takes steps back, after it has said what is lost.
func (c *migrateDown) Run(ctx context.Context, a *app) error {
	if c.To != nil && *c.To < 0 {
		return usage("the lowest is 0, which drops every table", "--to is %d", *c.To)
	}
	db, closeDB, err := a.open(ctx, refuse)
	if err != nil {
		return err
	}
	defer closeDB()
	to, err := c.target(ctx, a, db)
	if err != nil {
		return err
	}
	plan, err := model.PlanDown(ctx, db, a.config(), to)
	if err != nil {
		return err
	}
	none := fmt.Sprintf("the tables are of version %d already", to)
	if len(plan.Steps) == 0 {
		return a.tell("", nil, none, "")
	}
	loss := lossOf(plan)
	if c.DryRun {
		if err := a.tell("would take back", plan.Steps, none, ""); err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s\n%s", loss, plan.SQL)
		return err
	}
	if !c.Yes {
		if err := a.ask(loss); err != nil {
			return err
		}
	}
	steps, err := model.MigrateDown(ctx, db, a.config(), to)
	if err != nil {
		return err
	}
	return a.tell("took back", steps, none, "")
}

// target is one step below where the tables are, unless --to says otherwise.
func (c *migrateDown) target(ctx context.Context, a *app, db *gorm.DB) (int64, error) {
	if c.To != nil {
		return *c.To, nil
	}
	steps, err := model.MigrationStatus(ctx, db, a.config())
	if err != nil {
		return 0, err
	}
	to := int64(-1)
	for _, s := range steps {
		if s.Applied {
			to = s.Version - 1
		}
	}
	if to < 0 {
		return 0, failed(fmt.Errorf("there are no txmq tables with prefix %s to take down", a.root.Prefix),
			"version 0 is the lowest; `txmq migrate status` shows where the tables are")
	}
	return to, nil
}

// lossOf says what is dropped, and what that means.
func lossOf(p model.Plan) string {
	var b strings.Builder
	history := false
	for _, l := range p.Lost {
		if l.Column != "" {
			fmt.Fprintf(&b, "drops column %s of table %s, set in %d rows\n", l.Column, l.Table, l.Rows)
			continue
		}
		fmt.Fprintf(&b, "drops table %s with %d rows\n", l.Table, l.Rows)
		history = history || strings.HasSuffix(l.Table, "msg_consume") || strings.HasSuffix(l.Table, "tx_log")
	}
	if history {
		b.WriteString("Without these rows an event that is delivered again runs again, and check-backs of half messages get no answer.\n")
	}
	return b.String()
}

// ask wants "yes" typed on a terminal.
func (a *app) ask(what string) error {
	in, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("look at it with --dry-run, then repeat it with --yes", "without --yes nothing is dropped:\n%s", strings.TrimSpace(what))
	}
	return confirm(in, a.stderr, what)
}

func confirm(in io.Reader, out io.Writer, what string) error {
	if _, err := fmt.Fprintf(out, "%sType yes to go on: ", what); err != nil {
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) != "yes" {
		return failed(errors.New("nothing was dropped"), "type yes, or give --yes")
	}
	return nil
}
