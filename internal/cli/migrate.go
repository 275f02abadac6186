package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/txmq/txmq/model"
)

type migrateCommands struct {
	Up     migrateUp     `cmd:"" help:"Make or update the tables. Run twice, it does nothing the second time."`
	Down   migrateDown   `cmd:"" help:"Take steps back. Drops tables or columns with all that is in them, so it asks first."`
	Adopt  migrateAdopt  `cmd:"" help:"Make a consume table that somebody else wrote txmq's. Without --apply it only says how."`
	Status migrateStatus `cmd:"" help:"List the steps and which of them this database has taken. Exits 1 when some are left."`
	Print  migratePrint  `cmd:"" help:"Print the SQL of all steps. Needs no database."`
}

type migrateUp struct {
	DryRun bool `once:"" help:"Say what would be done, and do nothing."`
}

// Run makes or updates the tables.
func (c *migrateUp) Run(ctx context.Context, a *app) error {
	absent := create
	if c.DryRun {
		absent = imagine
	}
	db, closeDB, err := a.open(ctx, absent)
	if err != nil {
		return err
	}
	defer closeDB()
	if c.DryRun {
		plan, err := model.PlanUp(ctx, db, a.config())
		if err != nil {
			return err
		}
		return a.tell("would apply", plan.Steps, "up to date", plan.SQL)
	}
	steps, err := model.Migrate(ctx, db, a.config())
	if err != nil {
		return err
	}
	return a.tell("applied", steps, "up to date", "")
}

// tell lists steps, or says that there are none, and then prints the SQL.
func (a *app) tell(verb string, steps []model.Migration, none, sql string) error {
	var b strings.Builder
	for _, step := range steps {
		fmt.Fprintln(&b, verb, step.Name)
	}
	if len(steps) == 0 {
		fmt.Fprintln(&b, none)
	}
	if sql != "" {
		fmt.Fprintf(&b, "\n%s", sql)
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

type migrateStatus struct{ output }

// Run lists the steps.
func (c *migrateStatus) Run(ctx context.Context, a *app) error {
	db, closeDB, err := a.open(ctx, refuse)
	if err != nil {
		return err
	}
	defer closeDB()
	wait, cancel := context.WithTimeout(ctx, a.root.ConnectTimeout)
	defer cancel()
	steps, err := model.MigrationStatus(wait, db, a.config())
	if err != nil {
		return err
	}
	rows, left := make([][]string, 0, len(steps)), 0
	for _, s := range steps {
		applied := "yes"
		if !s.Applied {
			applied = "no"
			left++
		}
		rows = append(rows, []string{fmt.Sprint(s.Version), s.Name, applied})
	}
	if err := c.write(a.stdout, steps, []string{"VERSION", "NAME", "APPLIED"}, rows); err != nil || left == 0 {
		return err
	}
	return failed(fmt.Errorf("%d of %d steps are not applied", left, len(steps)), "run `txmq migrate up`")
}

type migratePrint struct {
	Dialect string `once:"" default:"mysql" enum:"mysql,mariadb,sqlite" help:"mysql, mariadb (the same) or sqlite."`
}

// Run prints the SQL.
func (c *migratePrint) Run(a *app) error {
	dialect := c.Dialect
	if dialect == "mariadb" {
		dialect = "mysql"
	}
	text, err := model.Print(dialect, a.config())
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, text)
	return err
}
