package model

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/txguard"
)

// DefaultPrefix stands before the name of each table.
const DefaultPrefix = "t_"

// Config says where txmq's tables are. The zero value is the usual one.
type Config struct {
	// Prefix of the tables: letters, digits and "_", at most 32. Default "t_".
	Prefix string

	// Clock is for this module's own tests. Leave it nil.
	Clock *dbclock.Offset
}

// Store is txmq's side of one database: the service's own *gorm.DB, and the
// tables in it. Safe for concurrent use. It has nothing to close.
type Store struct {
	db         *gorm.DB
	pool       *sql.DB
	d          dialect
	prefix     string
	clock      *dbclock.Offset
	databaseID string
	texts      *texts
	answers    sync.Pool // of *answer
}

var prefixRule = regexp.MustCompile(`^[A-Za-z0-9_]{1,32}$`)

// Open checks that db is one txmq can work with and that `txmq migrate up` has
// been there, and changes nothing in the database. It registers two callbacks
// on db that do nothing outside txmq's own transactions. A database that does
// not answer is an error after 5 s, or ctx's deadline if that is nearer. Errors
// are a *txmq.SchemaError with a hint, *txmq.FieldErrors (one that Is
// txmq.ErrInTransaction too), or the database's with its address.
func Open(ctx context.Context, db *gorm.DB, cfg Config) (*Store, error) {
	s, err := connect(ctx, "Open", db, cfg)
	if err != nil {
		return nil, err
	}
	if err := txguard.Register(db); err != nil {
		return nil, err
	}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	s.databaseID, err = s.meta(ctx, metaDatabaseID)
	if err == nil && s.databaseID == "" {
		err = &txmq.SchemaError{Table: s.Table("meta"), Problem: "the database has no ID", Hint: "run `txmq migrate up`"}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// connect is Open without a look at the tables, for migrations too. call is the
// function that was called.
func connect(ctx context.Context, call string, db *gorm.DB, cfg Config) (*Store, error) {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	if err := errors.Join(checkDB("model."+call+" db", db), checkPrefix(cfg.Prefix)); err != nil {
		return nil, err
	}
	d, ok := dialectOf(db)
	if !ok {
		return nil, &txmq.SchemaError{
			Problem: fmt.Sprintf("database %q is not supported", db.Name()),
			Hint:    "use MySQL, MariaDB or SQLite",
		}
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("model.%s: %w", call, err)
	}
	if err := d.greet(ctx, db, pool, &d); err != nil {
		return nil, wrapOp("open", "", err)
	}
	return &Store{db: db, pool: pool, d: d, prefix: cfg.Prefix, clock: cfg.Clock, texts: newTexts()}, nil
}

func checkDB(field string, db *gorm.DB) error {
	const want = "the service's own *gorm.DB, on which no transaction has begun"
	switch {
	case db == nil:
		return &txmq.FieldError{Field: field, Want: want}
	case InTransaction(db):
		return fmt.Errorf("%w: %w", txmq.ErrInTransaction, &txmq.FieldError{Field: field, Value: "a transaction's", Want: want})
	default:
		return nil
	}
}

func checkPrefix(prefix string) error {
	if prefixRule.MatchString(prefix) {
		return nil
	}
	if len(prefix) > 32 { // a DSN may have got there, and half of one is not known for what it is
		prefix = fmt.Sprintf("(%d bytes)", len(prefix))
	}
	return &txmq.FieldError{Field: "model.Config.Prefix", Value: prefix, Want: `letters, digits and "_", at most 32`}
}

// InTransaction tells whether db is the handle of a running transaction.
func InTransaction(db *gorm.DB) bool {
	_, ok := db.Statement.ConnPool.(gorm.TxCommitter)
	return ok
}

// DatabaseID is the random name that `migrate up` gave this database.
func (s *Store) DatabaseID() string { return s.databaseID }

// Table is the full name of one of txmq's tables: Table("msg_consume").
func (s *Store) Table(name string) string { return s.prefix + name }

// DB is the service's own *gorm.DB, as it was given to Open.
func (s *Store) DB() *gorm.DB { return s.db }

// MaxOpenConns is the pool's limit, 0 for none.
func (s *Store) MaxOpenConns() int { return s.pool.Stats().MaxOpenConnections }

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var t Time
	err := s.pool.QueryRowContext(ctx, s.q("SELECT {now}")).Scan(&t)
	return t.Time, wrapOp("now", "", err)
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error { return wrapOp("ping", "", s.pool.PingContext(ctx)) }

// Transient says whether err is the database's passing trouble (a deadlock, a
// lock wait, a lost connection), which a new try may well not meet.
func (s *Store) Transient(err error) bool {
	return err != nil && (s.d.deadlock(err) || s.d.lockWait(err) || s.d.breaks(err))
}

// Deadlock says whether the server has rolled the transaction back to end a
// deadlock: where nothing but a first statement was in it, begin again.
func (s *Store) Deadlock(err error) bool { return err != nil && s.d.deadlock(err) }

// q fills the {words} of a statement. The only text it puts in is the checked
// prefix, the dialect's own words, and the test clock's offset, a number.
func (s *Store) q(template string) string { return s.prefixed("", template) }

// prefixed is q with the words that a dialect puts before the statement.
func (s *Store) prefixed(words, template string) string {
	if s.clock != nil {
		return words + s.fill(template)
	}
	key := [2]string{words, template}
	if text, ok := s.texts.find(key); ok {
		return text
	}
	return s.texts.keep(key, words+s.fill(template))
}

func (s *Store) fill(template string) string {
	now, nowPlus := s.d.now, s.d.nowPlus
	if us := s.clock.Microseconds(); us != 0 {
		now = strings.Replace(s.d.nowPlus, "?", strconv.FormatInt(us, 10), 1)
		nowPlus = strings.Replace(s.d.nowPlus, "?", "("+strconv.FormatInt(us, 10)+" + ?)", 1)
	}
	text := strings.NewReplacer("{rest}", s.d.between("{now}", "lease_until"), "{idle}", s.d.between("updated_at", "{now}"),
		"{silent}", s.d.between("seen_at", "{now}"), "{random}", s.d.random).Replace(template)
	return strings.NewReplacer(
		"{prefix}", s.prefix, "{now}", now, "{now+?}", nowPlus,
		"{lock nowait}", s.d.lockNowait,
	).Replace(text)
}

// texts keeps the statements that were filled while the clock was not moved.
// There are as many as the code has; a sync.Map would allocate at each look.
type texts struct {
	mu sync.RWMutex
	of map[[2]string]string
}

func newTexts() *texts { return &texts{of: map[[2]string]string{}} }

func (t *texts) find(key [2]string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	text, ok := t.of[key]
	return text, ok
}

func (t *texts) keep(key [2]string, text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[key] = text
	return text
}

// deadlockTries bounds how often a statement that is its own transaction runs
// again after the server undid it to end a deadlock.
const deadlockTries = 10

// alone runs a transaction of one statement, again when it was a deadlock's
// victim: nothing else was in it, so nobody has to hear of it.
func (s *Store) alone(do func() error) error {
	var err error
	for range deadlockTries {
		if err = do(); !s.Deadlock(err) {
			return err
		}
	}
	return err
}

// changeAlone is change in a transaction of its own.
func (s *Store) changeAlone(ctx context.Context, template string, args ...any) (n int64, err error) {
	err = s.alone(func() (err error) {
		n, err = s.change(ctx, s.pool, template, args...)
		return err
	})
	return n, err
}

// insertAlone is the dialect's insert in a transaction of its own.
func (s *Store) insertAlone(ctx context.Context, template string, args []any) (fresh bool, err error) {
	err = s.alone(func() (err error) {
		fresh, err = s.d.insert(ctx, s.pool, s.q(template), args)
		return err
	})
	return fresh, err
}

// change runs a conditional UPDATE and says how many rows met its condition.
// Every statement sets something that differs from what its WHERE asks for, so
// the number is the same with and without clientFoundRows.
func (s *Store) change(ctx context.Context, c conn, template string, args ...any) (int64, error) {
	return s.changePrefixed(ctx, c, "", template, args...)
}

// changePrefixed is change for a statement that a dialect puts words before.
func (s *Store) changePrefixed(ctx context.Context, c conn, prefix, template string, args ...any) (int64, error) {
	res, err := c.ExecContext(ctx, s.prefixed(prefix, template), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func wrapOp(op, eventID string, err error) error {
	if err == nil {
		return nil
	}
	var known *txmq.OpError
	if errors.As(err, &known) {
		return err
	}
	return &txmq.OpError{Op: op, EventID: eventID, Err: err}
}

func micros(d time.Duration) int64 { return d.Microseconds() }

// checkKeys refuses what is missing, and what a key column would cut.
func checkKeys(fields ...[2]string) error {
	var errs []error
	if err := checkWidths(fields...); err != nil {
		errs = append(errs, err)
	}
	for _, f := range fields {
		if f[1] == "" {
			errs = append(errs, &txmq.FieldError{Field: f[0], Want: "1 to 255 bytes"})
		}
	}
	return errors.Join(errs...)
}

// checkWidths refuses what a column would cut: a server that is not strict does
// so without an error.
func checkWidths(fields ...[2]string) error {
	var errs []error
	for _, f := range fields {
		name, value := f[0], f[1]
		if len(value) > txmq.MaxEventIDBytes {
			errs = append(errs, &txmq.FieldError{Field: name, Value: shorten(value), Want: "at most 255 bytes"})
		}
	}
	return errors.Join(errs...)
}

// shorten keeps an error readable whatever was put into the field.
func shorten(s string) string {
	const most = 32
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
