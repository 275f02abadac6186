package model

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// Plan is what a migration would do.
type Plan struct {
	Steps []Migration // in the order in which they would be taken
	SQL   string      // what they run, without the lines of the version table
	Lost  []Lost      // what goes with them; none on the way up
}

// Lost is a table, or with Column a column of one, that a step down drops.
type Lost struct {
	Table  string `json:"table"`
	Column string `json:"column,omitempty"`
	Rows   int64  `json:"rows"` // of the table, or with something in the column
}

// PlanUp says what Migrate would do, and refuses what it would. It changes
// nothing.
func PlanUp(ctx context.Context, db *gorm.DB, cfg Config) (Plan, error) {
	s, err := connect(ctx, "PlanUp", db, cfg)
	if err != nil {
		return Plan{}, err
	}
	if err := errors.Join(s.refuseForeign(ctx, ""), s.refuseHalfAdopted(ctx)); err != nil {
		return Plan{}, err
	}
	have, err := s.version(ctx)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	for _, name := range files(s.d) {
		if v := number(name); v > have {
			up, _ := ways(source(s.d, name, s.prefix))
			p.Steps = append(p.Steps, Migration{Version: v, Name: name})
			p.SQL += up
		}
	}
	return p, nil
}

// MigrateDown takes steps back until the tables are of version to; 0 drops them
// all, and with them what is known of events that were applied: replays then
// run again. Being there already is no error. It asks nobody: PlanDown says
// what would be lost.
func MigrateDown(ctx context.Context, db *gorm.DB, cfg Config, to int64) ([]Migration, error) {
	s, err := connect(ctx, "MigrateDown", db, cfg)
	if err != nil {
		return nil, err
	}
	return s.migrating(ctx, func(ctx context.Context) ([]Migration, error) { return s.down(ctx, to) })
}

func (s *Store) down(ctx context.Context, to int64) ([]Migration, error) {
	plan, err := s.planDown(ctx, to)
	if err != nil || len(plan.Steps) == 0 {
		return nil, err
	}
	p, err := s.provider()
	if err != nil {
		return nil, err
	}
	if _, err := p.DownTo(ctx, to); err != nil {
		return nil, wrapOp("migrate", "", err)
	}
	return plan.Steps, nil
}

// PlanDown says what MigrateDown would do, and counts what would be lost. It
// changes nothing.
func PlanDown(ctx context.Context, db *gorm.DB, cfg Config, to int64) (Plan, error) {
	s, err := connect(ctx, "PlanDown", db, cfg)
	if err != nil {
		return Plan{}, err
	}
	p, err := s.planDown(ctx, to)
	for i := range p.Lost {
		if err == nil {
			err = s.countLost(ctx, &p.Lost[i])
		}
	}
	return p, err
}

func (s *Store) planDown(ctx context.Context, to int64) (Plan, error) {
	have, err := s.version(ctx)
	switch {
	case err != nil:
		return Plan{}, err
	case to < 0:
		return Plan{}, &txmq.FieldError{Field: "model.MigrateDown version", Value: to, Want: "0 or more; 0 drops all tables"}
	case have > latest(s.d):
		return Plan{}, &txmq.SchemaError{Problem: "the tables are newer than this program", Hint: "take them down with the program that made them"}
	case to > latest(s.d):
		return Plan{}, &txmq.FieldError{
			Field: "model.MigrateDown version", Value: to, Want: fmt.Sprintf("0 to %d, the highest that there is", latest(s.d)),
		}
	case to > have:
		return Plan{}, &txmq.SchemaError{Problem: "the tables are not of that version yet", Hint: "run `txmq migrate up`"}
	}
	var p Plan
	for _, name := range slices.Backward(files(s.d)) {
		if v := number(name); v > to && v <= have {
			_, down := ways(source(s.d, name, s.prefix))
			p.Steps = append(p.Steps, Migration{Version: v, Name: name, Applied: true})
			p.SQL += down
		}
	}
	p.Lost = lostBy(p.SQL)
	return p, nil
}

var (
	dropTable  = regexp.MustCompile(`DROP TABLE (?:IF EXISTS )?(\w+)`)
	dropColumn = regexp.MustCompile(`ALTER TABLE (\w+) [^;]*?DROP COLUMN (\w+)`)
)

// lostBy reads what statements of ours drop. A column of a table that goes as
// well is not told.
func lostBy(sql string) []Lost {
	var lost []Lost
	for _, m := range dropTable.FindAllStringSubmatch(sql, -1) {
		lost = append(lost, Lost{Table: m[1]})
	}
	for _, m := range dropColumn.FindAllStringSubmatch(sql, -1) {
		if !slices.Contains(lost, Lost{Table: m[1]}) {
			lost = append(lost, Lost{Table: m[1], Column: m[2]})
		}
	}
	slices.SortStableFunc(lost, func(a, b Lost) int { return strings.Compare(a.Table, b.Table) })
	return lost
}

// countLost reads the whole table. One that is gone already, by a way down that
// was cut off, has no rows.
func (s *Store) countLost(ctx context.Context, l *Lost) error {
	what := "*"
	if l.Column != "" {
		what = l.Column
	}
	err := s.pool.QueryRowContext(ctx, "SELECT COUNT("+what+") FROM "+l.Table).Scan(&l.Rows)
	if s.d.missing(err) || err != nil && l.Column != "" && !s.hasColumns(ctx, strings.TrimPrefix(l.Table, s.prefix), l.Column) {
		return nil
	}
	return wrapOp("migrate", "", err)
}
