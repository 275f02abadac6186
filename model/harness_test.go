package model

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/testenv"
)

// harness is one database in one flavour, as the store suite sees it.
type harness struct {
	name string
	open func(testing.TB) *gorm.DB
	// server: rows are locked one by one, and a locking read need not wait.
	server bool
	// single: the pool has one connection, so two transactions can't be open.
	single bool
	// same: DDL goes the same way as in another harness, and takes its time.
	same bool
	// tune changes a store after Open.
	tune func(*Store)
}

// session is how MySQL bounds a lock wait; MariaDB understands it too.
func session(s *Store) { s.d.waiting = waitBySession(50) }

func harnesses() []harness {
	quiet := func() *gorm.Config { return &gorm.Config{Logger: logger.Discard} }
	maria := func(change func(*gorm.Config), params ...string) func(testing.TB) *gorm.DB {
		return func(tb testing.TB) *gorm.DB {
			cfg := quiet()
			if change != nil {
				change(cfg)
			}
			return opened(tb, mysql.Open(testenv.MySQL(tb, params...)), cfg)
		}
	}
	lite := func(cfg *gorm.Config) func(testing.TB) *gorm.DB {
		return func(tb testing.TB) *gorm.DB {
			return opened(tb, sqlite.Open(testenv.SQLite(tb, "_pragma=busy_timeout(1000)", "_pragma=synchronous(OFF)")), cfg)
		}
	}
	one := func(open func(testing.TB) *gorm.DB) func(testing.TB) *gorm.DB {
		return func(tb testing.TB) *gorm.DB {
			db := open(tb)
			pool, err := db.DB()
			if err != nil {
				tb.Fatal(err)
			}
			pool.SetMaxOpenConns(1)
			return db
		}
	}
	prepare := func(c *gorm.Config) { c.PrepareStmt = true }
	translate := func(c *gorm.Config) { c.TranslateError = true }
	return []harness{
		{name: "sqlite", open: lite(quiet())},
		{name: "sqlite, one connection", open: one(lite(quiet())), single: true},
		{name: "sqlite, PrepareStmt", open: lite(&gorm.Config{Logger: logger.Discard, PrepareStmt: true}), same: true},
		{name: "mariadb", open: maria(nil), server: true},
		{name: "mariadb, clientFoundRows", open: maria(nil, "clientFoundRows=true"), server: true, same: true},
		{name: "mariadb, loc and time_zone of Shanghai", open: maria(nil, "loc=Asia%2FShanghai", "time_zone=%27%2B08%3A00%27"), server: true, same: true},
		{name: "mariadb, no interpolateParams", open: maria(nil, "interpolateParams=false"), server: true},
		{name: "mariadb, charset of three bytes", open: maria(nil, "charset=utf8"), server: true, same: true},
		{name: "mariadb, PrepareStmt", open: maria(prepare), server: true, same: true},
		{name: "mariadb, TranslateError", open: maria(translate), server: true, same: true},
		{name: "mariadb, waits as MySQL", open: maria(nil, "interpolateParams=false"), server: true, same: true, tune: session},
		{name: "mariadb, one connection", open: one(maria(nil)), server: true, single: true},
		{name: "mariadb, READ COMMITTED in the DSN", open: maria(nil, readCommitted), server: true, same: true},
		{name: "mariadb, not strict", open: maria(nil, "sql_mode=%27%27"), server: true},
	}
}

// tb is what the helpers ask of *testing.T, *testing.B or *rapid.T.
type tb interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

func opened(tb testing.TB, d gorm.Dialector, cfg *gorm.Config) *gorm.DB {
	tb.Helper()
	db, err := gorm.Open(d, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = pool.Close() })
	return db
}

// check is one sentence of the contract.
type check struct {
	name  string
	needs func(harness) bool // nil: every harness
	run   func(*testing.T, *bundle)
}

func ddl(h harness) bool      { return !h.same }
func twoDDL(h harness) bool   { return !h.same && !h.single }
func two(h harness) bool      { return !h.single }
func server(h harness) bool   { return h.server }
func rowLocks(h harness) bool { return h.server && !h.single }

// TestStore runs every check on every harness. Harnesses run side by side, each
// in a database of its own; the checks of one run in turn.
func TestStore(t *testing.T) {
	t.Parallel()
	var all []check
	for _, part := range [][]check{
		claimChecks, takeOverChecks, applyChecks, strictChecks, finishChecks, releaseChecks, failChecks, sweepChecks, readChecks,
		redriveChecks, manualChecks, runChecks, logChecks, jobChecks, keyChecks, openChecks, expandChecks, downChecks, adoptChecks,
		txChecks, raceChecks, troubleChecks, unknownChecks,
	} {
		all = append(all, part...)
	}
	// Most of the time goes by in waits for locks, so -parallel is too few.
	var wg sync.WaitGroup
	at := make(chan struct{}, 6)
	for _, h := range harnesses() {
		wg.Go(func() {
			at <- struct{}{}
			defer func() { <-at }()
			t.Run(h.name, func(t *testing.T) { runSuite(t, h, all) })
		})
	}
	wg.Wait()
}

func runSuite(t *testing.T, h harness, checks []check) {
	db := h.open(t)
	if _, err := Migrate(t.Context(), db, Config{}); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "CREATE TABLE account (id VARCHAR(64) PRIMARY KEY, balance BIGINT NOT NULL)")
	for _, c := range checks {
		if c.needs != nil && !c.needs(h) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(t, setup(t, h, db)) })
	}
}

// bundle is what a check works with: empty tables and a clock of its own.
type bundle struct {
	harness
	db    *gorm.DB
	s     *Store
	clock *dbclock.Offset
}

func setup(t *testing.T, h harness, db *gorm.DB) *bundle {
	t.Helper()
	b := &bundle{harness: h, db: db, clock: &dbclock.Offset{}}
	b.s = b.store(t, Config{Clock: b.clock})
	for _, table := range []string{"t_msg_consume", "t_tx_log", "t_job_lease", "t_run", "t_audit", "account"} {
		exec(t, db, "DELETE FROM "+table)
	}
	return b
}

func (b *bundle) store(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), b.db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if b.tune != nil {
		b.tune(s)
	}
	return s
}

func exec(t tb, db *gorm.DB, query string, args ...any) {
	t.Helper()
	if err := db.Exec(query, args...).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (b *bundle) count(t tb, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := b.db.Raw(query, args...).Scan(&n).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const (
	handler = "shares:order-paid"
	minute  = time.Minute
	// short is the shortest wait for a lock that a server can count.
	short = time.Second
)

func arrival(event string) Arrival {
	return Arrival{
		EventID: event, Consumer: handler, PayloadHash: sha256.Sum256([]byte("body")),
		At: Position{Topic: "order-paid", BrokerName: "b-0", QueueID: 3, QueueOffset: 42, MsgID: "AC1", OffsetMsgID: "7F0"},
	}
}

func (b *bundle) begin(t tb) *Tx {
	t.Helper()
	tx, err := b.s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Rollback)
	return tx
}

// apply runs an event to SUCCESS.
func (b *bundle) apply(t tb, event string) Claimed {
	t.Helper()
	tx := b.begin(t)
	c, err := tx.Apply(t.Context(), arrival(event), short)
	if err != nil {
		t.Fatalf("Apply(%s): %v", event, err)
	}
	if c.Decision != Run {
		tx.Rollback()
		return c
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatalf("Commit(%s): %v", event, err)
	}
	return c
}

// claim gives the record to owner for a minute.
func (b *bundle) claim(t tb, event, owner string) (Claimed, Held) {
	t.Helper()
	c, err := b.s.Claim(t.Context(), arrival(event), owner, minute, short)
	if err != nil {
		t.Fatalf("Claim(%s, %s): %v", event, owner, err)
	}
	return c, Held{EventID: event, Consumer: handler, Owner: owner, Version: c.Version}
}

func (b *bundle) succeed(t tb, h Held) error {
	t.Helper()
	tx := b.begin(t)
	if err := tx.Succeed(t.Context(), h); err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit(t.Context())
}

func (b *bundle) fail(t tb, h Held, dead bool) {
	t.Helper()
	err := b.s.Fail(t.Context(), Failure{
		Arrival: arrival(h.EventID), Owner: h.Owner, Version: h.Version, Dead: dead, RetryIn: minute, Err: errors.New("no stock"),
	})
	if err != nil {
		t.Fatalf("Fail(%s): %v", h.EventID, err)
	}
}

// in puts a record into a state by the transitions alone.
func (b *bundle) in(t tb, event string, status Status) ConsumeRecord {
	t.Helper()
	_, h := b.claim(t, event, "worker-1")
	switch status {
	case Success:
		if err := b.succeed(t, h); err != nil {
			t.Fatal(err)
		}
	case Fail, Dead:
		b.fail(t, h, status == Dead)
	case Processing:
	}
	return b.find(t, event)
}

func (b *bundle) find(t tb, event string) ConsumeRecord {
	t.Helper()
	r, err := b.s.Find(t.Context(), event, handler)
	if err != nil {
		t.Fatalf("Find(%s): %v", event, err)
	}
	return r
}

func (b *bundle) absent(t tb, event string) {
	t.Helper()
	if r, err := b.s.Find(t.Context(), event, handler); !errors.Is(err, txmq.ErrNotFound) {
		t.Errorf("Find(%s) = %v, %v, want ErrNotFound", event, r.Status, err)
	}
}

// is compares what most checks ask of a record.
func (r ConsumeRecord) is(status Status, version int64, retries int, owner string) error {
	got := fmt.Sprintf("%s v%d retries %d owner %q", r.Status, r.Version, r.RetryCnt, r.Owner)
	if want := fmt.Sprintf("%s v%d retries %d owner %q", status, version, retries, owner); got != want {
		return fmt.Errorf("record = %s, want %s", got, want)
	}
	return nil
}

func want(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantErr(t tb, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s = %v, want %v", what, err, target)
	}
}

// wantUntil checks a time against the database's clock plus d.
func (b *bundle) wantUntil(t tb, what string, at Time, d time.Duration) {
	t.Helper()
	now, err := b.s.Now(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if off := at.Sub(now.Add(d)).Abs(); off > 5*time.Second || at.IsZero() {
		t.Errorf("%s = %v, want %v from %v", what, at, d, now)
	}
}
