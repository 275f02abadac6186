package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/glebarez/sqlite"
	gomysql "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/model"
)

// missing says what to do about a file of SQLite that is not there.
type missing uint8

const (
	refuse  missing = iota
	create          // the file
	imagine         // an empty database, in memory
)

// open connects to the database, and gives up after --connect-timeout. close
// has to be called.
func (a *app) open(ctx context.Context, absent missing) (db *gorm.DB, closeDB func(), err error) {
	if a.root.ConnectTimeout <= 0 {
		return nil, nil, usage("give a duration such as 5s", "%s is %v", a.called("connect-timeout"), a.root.ConnectTimeout)
	}
	dsn, err := a.dsn()
	if err != nil {
		return nil, nil, err
	}
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	var pool *sql.DB
	var dialector gorm.Dialector
	if s.mysql != nil {
		connector, err := gomysql.NewConnector(s.mysql)
		if err != nil {
			return nil, nil, usage(hintDSN, "the DSN can't be used") // its text may quote the DSN
		}
		pool = sql.OpenDB(connector)
		pool.SetConnMaxLifetime(3 * time.Minute) // under any server's wait_timeout
		dialector = mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
	} else {
		file, err := s.file(absent)
		if err != nil {
			return nil, nil, err
		}
		if pool, err = sql.Open(sqlite.DriverName, file); err != nil {
			return nil, nil, err
		}
		dialector = &sqlite.Dialector{Conn: pool}
	}
	closeDB = func() { _ = pool.Close() }
	if err = a.ping(ctx, pool, s); err == nil {
		db, err = gorm.Open(dialector, &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	}
	if err != nil {
		closeDB()
		return nil, nil, err
	}
	return db, closeDB, nil
}

func (a *app) ping(ctx context.Context, pool *sql.DB, s source) error {
	wait, cancel := context.WithTimeout(ctx, a.root.ConnectTimeout)
	defer cancel()
	err := pool.PingContext(wait)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return failed(fmt.Errorf("%v gave no answer within %v", s, a.root.ConnectTimeout), hintReach)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", s, err)
	}
	return nil
}

// store opens the tables as well.
func (a *app) store(ctx context.Context) (*model.Store, func(), error) {
	db, closeDB, err := a.open(ctx, refuse)
	if err != nil {
		return nil, nil, err
	}
	wait, cancel := context.WithTimeout(ctx, a.root.ConnectTimeout)
	defer cancel()
	s, err := model.Open(wait, db, a.config())
	if err != nil {
		closeDB()
		return nil, nil, err
	}
	return s, closeDB, nil
}

func (a *app) config() model.Config { return model.Config{Prefix: a.root.Prefix} }
