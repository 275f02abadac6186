package model

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"testing/fstest"

	"github.com/google/uuid"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// tables are those that the migrations make, by the name after the prefix: the
// step that makes them, and some columns by which ours is told from another's.
var tables = []struct {
	name    string
	since   int64
	columns string
}{
	{"meta", 1, "name, value, updated_at"},
	{"msg_consume", 1, "event_id, consumer, payload_hash, version"},
	{"tx_log", 1, "attempt, fenced_event, route"},
	{"job_lease", 1, "name, due_at, version"},
	{"run", 2, "consumer_group, seen_at, stopped_at"},
	{"audit", 2, "actor, reason, state_before, retry_cnt"},
}

// Migration is one numbered step and whether this database has taken it.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

// Migrate makes or updates the tables, and gives the database its ID. Taking
// no step is no error. A table of the same name that txmq did not make is
// refused with a *txmq.SchemaError. Two at the same time wait for one another.
// A database that does not answer is an error as in Open.
func Migrate(ctx context.Context, db *gorm.DB, cfg Config) ([]Migration, error) {
	s, err := connect(ctx, "Migrate", db, cfg)
	if err != nil {
		return nil, err
	}
	return s.migrating(ctx, s.up)
}

// migrating keeps two migrations apart by the dialect's lock, where it has one.
// Without, each step can be lost to another migration, which then has taken it,
// so trying again leads to the end.
func (s *Store) migrating(ctx context.Context, do func(context.Context) ([]Migration, error)) (steps []Migration, err error) {
	if s.d.migrateLock == nil || s.MaxOpenConns() == 1 { // the lock would hold the only connection
		for range 2 + len(files(s.d)) {
			if steps, err = do(ctx); err == nil {
				break
			}
		}
		return steps, err
	}
	unlock, err := s.lockMigration(ctx)
	if err != nil {
		return nil, wrapOp("migrate", "", err)
	}
	defer unlock()
	return do(ctx)
}

func (s *Store) up(ctx context.Context) ([]Migration, error) {
	if err := errors.Join(s.refuseForeign(ctx, ""), s.refuseHalfAdopted(ctx)); err != nil {
		return nil, err
	}
	steps, err := s.takeSteps(ctx)
	if err != nil {
		return nil, err
	}
	return steps, s.putMetaOnce(ctx, metaDatabaseID, uuid.NewString())
}

func (s *Store) takeSteps(ctx context.Context) ([]Migration, error) {
	p, err := s.provider()
	if err != nil {
		return nil, err
	}
	results, err := p.Up(ctx)
	if err != nil {
		return nil, wrapOp("migrate", "", err)
	}
	steps := make([]Migration, 0, len(results))
	for _, r := range results {
		steps = append(steps, Migration{Version: r.Source.Version, Name: r.Source.Path, Applied: true})
	}
	return steps, nil
}

// MigrationStatus lists every migration this program knows. It changes nothing.
func MigrationStatus(ctx context.Context, db *gorm.DB, cfg Config) ([]Migration, error) {
	s, err := connect(ctx, "MigrationStatus", db, cfg)
	if err != nil {
		return nil, err
	}
	have, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	var steps []Migration
	for _, name := range files(s.d) {
		v := number(name)
		steps = append(steps, Migration{Version: v, Name: name, Applied: v <= have})
	}
	return steps, nil
}

// Print is the SQL that does what Migrate does in an empty database, for those
// who have DBAs: the version table with what was applied, every step, and the
// database's ID. The dialect is "mysql" (MariaDB too) or "sqlite".
func Print(dialectName string, cfg Config) (string, error) {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	bad := checkPrefix(cfg.Prefix)
	for _, d := range []dialect{mysqlDialect(), sqliteDialect()} {
		if d.name == dialectName {
			if bad != nil {
				return "", bad
			}
			s := &Store{d: d, prefix: cfg.Prefix, texts: newTexts()}
			return s.print()
		}
	}
	return "", errors.Join(bad, &txmq.FieldError{Field: "model.Print dialect", Value: dialectName, Want: `"mysql" or "sqlite"`})
}

func (s *Store) print() (string, error) {
	versions, err := database.NewStore(s.d.goose, s.versionTable())
	if err != nil {
		return "", err
	}
	var table recorder
	if err := versions.CreateVersionTable(context.Background(), &table); err != nil {
		return "", err
	}
	var b strings.Builder
	applied := func(v int64) {
		fmt.Fprintf(&b, "INSERT INTO %s (version_id, is_applied) VALUES (%d, TRUE);\n\n", s.versionTable(), v)
	}
	fmt.Fprintf(&b, "%s;\n", strings.TrimRight(table.statement, "; \n\t"))
	applied(0)
	for _, name := range files(s.d) {
		up, _ := ways(source(s.d, name, s.prefix))
		up = strings.ReplaceAll(up, "CREATE TABLE IF NOT EXISTS", "CREATE TABLE") // a person should see that one exists
		fmt.Fprintf(&b, "-- %s\n%s", name, up)
		applied(number(name))
	}
	b.WriteString(s.q("INSERT INTO {prefix}meta (name, value, updated_at) VALUES ('" + metaDatabaseID + "', {random}, {now});\n"))
	return b.String(), nil
}

// recorder is a connection that keeps the statement instead of running it.
type recorder struct {
	conn
	statement string
}

// ExecContext keeps query.
func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.statement = query
	return driver.ResultNoRows, nil
}

func (s *Store) versionTable() string { return s.prefix + "txmq_version" }

// version is the highest step taken, 0 for none.
func (s *Store) version(ctx context.Context) (int64, error) {
	var v sql.NullInt64
	err := s.pool.QueryRowContext(ctx, s.q("SELECT MAX(version_id) FROM {prefix}txmq_version WHERE is_applied")).Scan(&v)
	if s.d.missing(err) {
		return 0, nil
	}
	return v.Int64, wrapOp("schema", "", err)
}

func (s *Store) lockMigration(ctx context.Context) (func(), error) {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := s.d.migrateLock(ctx, c, s.versionTable())
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return func() {
		unlock()
		_ = c.Close()
	}, nil
}

// refuseForeign: where our version table is absent, none of our names may be
// taken. Where it is there, the names of the steps left may be, by a step that
// was cut off, and then the columns are ours. but is a name that may be taken:
// of the table that is about to be adopted.
func (s *Store) refuseForeign(ctx context.Context, but string) error {
	began, err := s.exists(ctx, s.versionTable())
	if err != nil {
		return err
	}
	have, err := s.version(ctx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.since <= have || s.Table(t.name) == but {
			continue
		}
		taken, err := s.exists(ctx, s.Table(t.name))
		if err != nil {
			return err
		}
		if taken && (!began || !s.hasColumns(ctx, t.name, t.columns)) {
			hint := "choose another prefix, or rename that table"
			if t.name == "msg_consume" {
				hint += ", or look at `txmq migrate adopt --table " + s.Table(t.name) + "`"
			}
			return &txmq.SchemaError{Table: s.Table(t.name), Problem: "exists, and txmq did not make it", Hint: hint}
		}
	}
	return nil
}

// hasColumns takes any error for no: what then can't be read can't be used.
func (s *Store) hasColumns(ctx context.Context, table, columns string) bool {
	_, err := s.pool.ExecContext(ctx, "SELECT "+columns+" FROM "+s.Table(table)+" WHERE 1 = 0")
	return err == nil
}

func (s *Store) exists(ctx context.Context, table string) (bool, error) {
	var n int
	err := s.pool.QueryRowContext(ctx, s.d.tableExists, table).Scan(&n)
	return n > 0, wrapOp("schema", "", err)
}

func (s *Store) provider() (*goose.Provider, error) {
	filled := fstest.MapFS{}
	for _, name := range files(s.d) {
		filled[name] = &fstest.MapFile{Data: []byte(source(s.d, name, s.prefix)), Mode: 0o444}
	}
	return goose.NewProvider(s.d.goose, s.pool, filled,
		goose.WithTableName(s.versionTable()), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

func files(d dialect) []string {
	names, err := fs.Glob(d.migrations, "*.sql")
	if err != nil {
		panic(err) // only a bad pattern can fail
	}
	sort.Strings(names)
	return names
}

func source(d dialect, name, prefix string) string {
	text, err := fs.ReadFile(d.migrations, name)
	if err != nil {
		panic(err) // the file is compiled in
	}
	return strings.ReplaceAll(string(text), "{{prefix}}", prefix)
}

// ways are the SQL up and the SQL down of a step.
func ways(text string) (up, down string) {
	_, text, _ = strings.Cut(text, "-- +goose Up\n")
	up, down, _ = strings.Cut(text, "-- +goose Down\n")
	return up, down
}

func number(name string) (v int64) {
	_, _ = fmt.Sscanf(name, "%d_", &v)
	return v
}

func latest(d dialect) int64 {
	names := files(d)
	return number(names[len(names)-1])
}
