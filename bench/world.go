package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/bench/dbcount"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/services"
	"github.com/txmq/txmq/model"
)

const (
	// poolSize is every side's: more than its senders or workers and what txmq
	// asks for beside them.
	poolSize = 24
	queues   = 8
)

// world is one benchmark's surroundings: databases and topics of its own, gone
// when it closes.
type world struct {
	log        *slog.Logger
	dsn        string
	nameServer string
	run        string // part of all names
	closers    []func() error
}

func newWorld(log *slog.Logger) *world {
	return &world{
		log: log, run: strings.ToLower(rand.Text()[:10]),
		dsn: services.Lookup("TXMQ_TEST_MYSQL"), nameServer: services.Lookup("TXMQ_TEST_NAMESRV"),
	}
}

// ready says whether the services are there, which only some need.
func (w *world) ready() error {
	if w.dsn == "" || w.nameServer == "" {
		return errors.New("TXMQ_TEST_MYSQL or TXMQ_TEST_NAMESRV is not set, and .services/env does not say it: run scripts/services up")
	}
	return nil
}

func (w *world) atEnd(f func() error) { w.closers = append(w.closers, f) }

// close undoes everything, the last thing first.
func (w *world) close() (err error) {
	for _, f := range slices.Backward(w.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// database is one side's: a schema of its own on the server, behind a pool whose
// traffic is counted.
type database struct {
	counter *dbcount.Counter
	pool    *sql.DB
	gorm    *gorm.DB
}

// database makes one, with schema in it.
func (w *world) database(ctx context.Context, name string, schema ...string) (*database, error) {
	cfg, err := mysql.ParseDSN(w.dsn)
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams, cfg.ParseTime, cfg.Loc = true, true, time.UTC
	if err := w.readCommitted(ctx, cfg); err != nil {
		return nil, err
	}
	name = "txmq_bench_" + w.run + "_" + name
	if err := statement(ctx, cfg.Clone(), "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	admin := cfg.Clone()
	w.atEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return statement(ctx, admin, "DROP DATABASE "+name)
	})
	cfg.DBName = name
	d := &database{counter: new(dbcount.Counter)}
	connector, err := d.counter.MySQL(cfg)
	if err != nil {
		return nil, err
	}
	d.pool = sql.OpenDB(connector)
	w.atEnd(d.pool.Close)
	d.pool.SetMaxOpenConns(poolSize)
	d.pool.SetMaxIdleConns(poolSize)
	for _, s := range append([]string{accounts, fillAccounts, ledger}, schema...) {
		if _, err := d.pool.ExecContext(ctx, s); err != nil {
			return nil, err
		}
	}
	d.gorm, err = openGorm(d.pool)
	return d, err
}

func openGorm(pool *sql.DB) (*gorm.DB, error) {
	return gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}),
		&gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
}

// readCommitted has every session begin at READ COMMITTED, under the name that
// the server has for it. txmq asks for that level; its peers get it too.
func (w *world) readCommitted(ctx context.Context, cfg *mysql.Config) error {
	connector, err := mysql.NewConnector(cfg.Clone())
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	name := "transaction_isolation"
	if strings.Contains(version, "MariaDB") {
		name = "tx_isolation"
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params[name] = "'READ-COMMITTED'"
	return nil
}

// store migrates and opens txmq's side of d.
func (d *database) store(ctx context.Context) (*model.Store, error) {
	if _, err := model.Migrate(ctx, d.gorm, model.Config{}); err != nil {
		return nil, err
	}
	return model.Open(ctx, d.gorm, model.Config{})
}

func statement(ctx context.Context, cfg *mysql.Config, text string) error {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.ExecContext(ctx, text)
	return errors.Join(err, db.Close())
}

// topic makes one on every broker of the name server.
func (w *world) topic(ctx context.Context, name string) (string, error) {
	name = "bench_" + w.run + "_" + name
	brokers, err := remoting.Brokers(ctx, w.nameServer, "SELF_TEST_TOPIC")
	if err != nil {
		return "", err
	}
	for _, b := range brokers {
		if err := remoting.CreateTopic(ctx, b.Addr, name, queues, 6); err != nil {
			return "", err
		}
		w.atEnd(func() error { w.drop(name, b.Addr); return nil })
	}
	for { // the broker tells the name server in a moment
		if _, err := remoting.Brokers(ctx, w.nameServer, name); err == nil || ctx.Err() != nil {
			return name, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// drop deletes a topic as well as it can: what is left is an empty one.
func (w *world) drop(topic, broker string) {
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{w.nameServer})))
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(a.DeleteTopic(ctx, admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(broker),
			admin.WithNameSrvAddr([]string{w.nameServer})), a.Close())
	}
	if err != nil {
		w.log.Warn("topic stays on the broker", slog.String("topic", topic), slog.Any("error", err))
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// machine says what the numbers were measured on.
func machine() []slog.Attr {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown")
	}
	return []slog.Attr{
		slog.String("go", runtime.Version()), slog.String("arch", runtime.GOOS+"/"+runtime.GOARCH),
		slog.Int("cpus", runtime.NumCPU()), slog.Int("gomaxprocs", runtime.GOMAXPROCS(0)),
		slog.String("load", strings.TrimSpace(string(load))),
	}
}

// server says what the database is, and how far away.
func (w *world) server(ctx context.Context) ([]slog.Attr, error) {
	db, err := sql.Open("mysql", w.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	var version, flush string
	err = db.QueryRowContext(ctx, "SELECT VERSION(), @@GLOBAL.innodb_flush_log_at_trx_commit").Scan(&version, &flush)
	if err != nil {
		return nil, err
	}
	trips := make([]float64, 200)
	for i := range trips {
		began := time.Now()
		if _, err := db.ExecContext(ctx, "DO 1"); err != nil {
			return nil, err
		}
		trips[i] = float64(time.Since(began).Microseconds())
	}
	return []slog.Attr{
		slog.String("database", version), slog.String("flush_log_at_trx_commit", flush),
		slog.Float64("round_trip_us", medianOf(trips).mid),
	}, nil
}
