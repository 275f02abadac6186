package cli

import (
	"context"
	"fmt"
	"io"

	"gorm.io/gorm"

	"github.com/txmq/txmq/model"
)

type migrateCommands struct {
	Up     migrateUp     `cmd:"" help:"Make or update the tables. Run twice, it does nothing the second time."`
	Status migrateStatus `cmd:"" help:"List the steps and which of them this database has taken. Exits 1 when some are left."`
	Print  migratePrint  `cmd:"" help:"Print the SQL of all steps. Needs no database."`
}

type migrateUp struct {
	DryRun bool `once:"" help:"Say what would be done, and do nothing."`
}

// Run makes or updates the tables.
func (c *migrateUp) Run(ctx context.Context, a *app) error {
	db, closeDB, err := a.open(ctx, !c.DryRun)
	if err != nil {
		return err
	}
	defer closeDB()
	verb, steps := "applied", []model.Migration(nil)
	if c.DryRun {
		verb = "would apply"
		steps, err = a.pending(ctx, db)
	} else {
		steps, err = model.Migrate(ctx, db, a.config())
	}
	if err != nil {
		return err
	}
	for _, step := range steps {
		if _, err := fmt.Fprintln(a.stdout, verb, step.Name); err != nil {
			return err
		}
	}
	if len(steps) == 0 {
		_, err = fmt.Fprintln(a.stdout, "up to date")
	}
	return err
}

func (a *app) pending(ctx context.Context, db *gorm.DB) ([]model.Migration, error) {
	all, err := model.MigrationStatus(ctx, db, a.config())
	var left []model.Migration
	for _, step := range all {
		if !step.Applied {
			left = append(left, step)
		}
	}
	return left, err
}

type migrateStatus struct{ output }

// Run lists the steps.
func (c *migrateStatus) Run(ctx context.Context, a *app) error {
	db, closeDB, err := a.open(ctx, false)
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
