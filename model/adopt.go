package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// AdoptConfig names a consume table that somebody else wrote, with the columns
// event_id, consumer and status at least.
type AdoptConfig struct {
	// Table is its name, in the same database. Required.
	Table string

	// Map says what its states mean, for those that are not told by themselves:
	// PROCESSING, CONSUMING, SUCCESS, CONSUMED, FAIL, FAILED, DEAD. Numbers
	// never are. Default: none.
	Map map[string]Status

	// Zone is the offset from UTC that its DATETIME columns are written in, such
	// as "+08:00". A TIMESTAMP needs none. Default "+00:00".
	Zone string

	// Chunk is the most rows one statement copies, 1 to 100000; more where the
	// first column of the primary key repeats. Default 1000.
	Chunk int

	wait time.Duration // for the table, until it can be renamed; in tests less than 10 s
}

// keptSuffix is put to the name of an adopted table, which is never dropped.
const keptSuffix = "_before_txmq"

// Names in t_meta, beside those of meta.go.
const (
	metaAdopting = "adopting" // the table whose adoption has begun and not ended
	metaAdopted  = "adopted:" // and a table's name: when, and how many rows
)

// Adoption is what Adopt does with a table.
type Adoption struct {
	Table   string          `json:"table"`
	Kept    string          `json:"kept"`    // its name afterwards
	Ours    string          `json:"ours"`    // where its rows go
	Engine  string          `json:"engine"`  // of the table as it is
	Rows    int64           `json:"rows"`    // in the table
	Begun   bool            `json:"begun"`   // an earlier run was cut off: this one goes on
	Changes []AdoptedColumn `json:"changes"` // what differs from txmq's columns
	States  []AdoptedState  `json:"states"`
	// Consumers are the handler names it knows, the most frequent first, at most
	// 20. A handler goes on with its rows under the same name only.
	Consumers []AdoptedConsumer `json:"consumers"`
	Notes     []string          `json:"notes"` // what changes its meaning, or can't be filled
	// Problems keep it from being adopted; nothing is changed before they are
	// gone.
	Problems []*txmq.SchemaError `json:"-"`
	// Alter is what would make txmq's table of it in place. Adopt does not run
	// it: it copies, by Run.
	Alter string   `json:"alter"`
	Run   []string `json:"run"`

	t *foreign
}

// AdoptedColumn is a column that is not as txmq's.
type AdoptedColumn struct {
	Name   string `json:"name"`
	Theirs string `json:"theirs"` // empty: not there
	Ours   string `json:"ours"`   // empty: not taken over
}

// AdoptedState is what becomes of the rows in one state.
type AdoptedState struct {
	Old     string `json:"old"`
	Rows    int64  `json:"rows"`
	Means   Status `json:"means"`   // empty: not known
	Becomes Status `json:"becomes"` // FAIL where it means PROCESSING: it may be half done, and has to run
	Assumed bool   `json:"assumed"` // a number, by what most people mean by it
}

// AdoptedConsumer is a handler's name.
type AdoptedConsumer struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// AdoptError says that Adopt stopped half-way, and where. Calling it again goes
// on; before any consumer has run, the way back is RENAME TABLE Kept TO Table,
// after MigrateDown to 0 where Table has the name of txmq's own.
type AdoptError struct {
	Table string
	Kept  string // the name that Table may have by now
	Step  string // "rename", "migrate", "copy", "verify", "mark"
	Err   error
}

// Error names the table and the step.
func (e *AdoptError) Error() string {
	return fmt.Sprintf("adoption of %s stopped at the step %q: %v", e.Table, e.Step, e.Err)
}

// Unwrap gives the cause.
func (e *AdoptError) Unwrap() error { return e.Err }

// PlanAdopt looks at the table and says what Adopt would do. It changes nothing.
// It reads the whole table several times.
func PlanAdopt(ctx context.Context, db *gorm.DB, cfg Config, c AdoptConfig) (Adoption, error) {
	s, err := connect(ctx, "PlanAdopt", db, cfg)
	if err != nil {
		return Adoption{}, err
	}
	return s.planAdopt(ctx, c)
}

// Adopt makes txmq's consume table out of another one: it renames that, makes
// the tables as Migrate does, copies the rows in chunks by primary key, and
// compares. Until all are there the database gets no ID, so that no consumer
// opens it too early. The old table stays, under the name Kept. Stop its
// consumers before.
//
// Cut off anywhere, it can be called again and goes on. Its errors are a
// *txmq.SchemaError for each problem, joined, before anything is changed; then
// an *AdoptError.
func Adopt(ctx context.Context, db *gorm.DB, cfg Config, c AdoptConfig) (Adoption, error) {
	s, err := connect(ctx, "Adopt", db, cfg)
	if err != nil {
		return Adoption{}, err
	}
	var a Adoption
	_, err = s.migrating(ctx, func(ctx context.Context) ([]Migration, error) {
		a, err = s.planAdopt(ctx, c)
		if err == nil {
			err = a.refusal()
		}
		if err == nil {
			err = s.adopt(ctx, a)
		}
		return nil, err
	})
	return a, err
}

func (a Adoption) refusal() error {
	var errs []error
	for _, p := range a.Problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

func (s *Store) adopt(ctx context.Context, a Adoption) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, Adoption) error
	}{
		{"rename", s.keepForeign},
		{"migrate", s.makeOurs},
		{"copy", s.copyForeign},
		{"verify", s.verifyCopy},
		{"mark", s.markAdopted},
	} {
		if err := step.do(ctx, a); err != nil {
			return &AdoptError{Table: a.Table, Kept: a.Kept, Step: step.name, Err: err}
		}
	}
	return nil
}

// makeOurs takes the steps of Migrate, and leaves out the ID.
func (s *Store) makeOurs(ctx context.Context, a Adoption) error {
	if _, err := s.takeSteps(ctx); err != nil {
		return err
	}
	return s.putMetaOnce(ctx, metaAdopting, a.Table)
}

// markAdopted: in this order, so that whatever is missing afterwards, a second
// call makes up for it.
func (s *Store) markAdopted(ctx context.Context, a Adoption) error {
	_, err := s.pool.ExecContext(ctx, s.q("DELETE FROM {prefix}meta WHERE name = ?"), metaAdopting)
	if err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	err = s.putMetaOnce(ctx, metaAdopted+a.Table, fmt.Sprintf("%s, %d rows", now.UTC().Format(timeLayout), a.Rows))
	if err != nil {
		return err
	}
	return s.putMetaOnce(ctx, metaDatabaseID, uuid.NewString())
}

// refuseHalfAdopted keeps Migrate from giving the database its ID while rows of
// an adopted table are still to be copied.
func (s *Store) refuseHalfAdopted(ctx context.Context) error {
	if !s.d.adopts {
		return nil
	}
	made, err := s.exists(ctx, s.Table("meta"))
	if err != nil {
		return err
	}
	table := ""
	if made {
		table, err = s.meta(ctx, metaAdopting)
	} else if kept, lookErr := s.exists(ctx, s.Table("msg_consume")+keptSuffix); kept || lookErr != nil {
		table, err = s.Table("msg_consume"), lookErr
	}
	if err == nil && table != "" {
		err = &txmq.SchemaError{
			Table: table, Problem: "its adoption has begun and not ended",
			Hint: "run `txmq migrate adopt --table " + table + " --apply`, or rename " + table + keptSuffix,
		}
	}
	return err
}

var (
	foreignName = regexp.MustCompile(`^[A-Za-z0-9_$]{1,52}$`)
	zoneRule    = regexp.MustCompile(`^[+-](0[0-9]|1[0-3]):[0-5][0-9]$`)
)

func (c AdoptConfig) withDefaults() AdoptConfig {
	c.Zone = cmp.Or(c.Zone, "+00:00")
	c.Chunk = cmp.Or(c.Chunk, 1000)
	c.wait = cmp.Or(c.wait, 10*time.Second)
	return c
}

func (c AdoptConfig) validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "model.AdoptConfig." + field, Value: value, Want: want})
	}
	if !foreignName.MatchString(c.Table) { // 64 with the suffix
		bad("Table", c.Table, `letters, digits, "_" and "$", at most 52`)
	}
	if !zoneRule.MatchString(c.Zone) {
		bad("Zone", c.Zone, "an offset such as +08:00")
	}
	if c.Chunk < 1 || c.Chunk > 100_000 {
		bad("Chunk", c.Chunk, "1 to 100000")
	}
	for old, status := range c.Map {
		if !slices.Contains([]Status{Processing, Success, Fail, Dead}, status) {
			bad(fmt.Sprintf("Map[%q]", old), string(status), "PROCESSING, SUCCESS, FAIL or DEAD")
		}
	}
	return errors.Join(errs...)
}
