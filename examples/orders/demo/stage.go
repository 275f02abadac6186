package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/examples/orders/shop"
	"github.com/txmq/txmq/internal/remoting"
)

// Hint is what to do when a service cannot be reached.
const Hint = "hint: bring the services up with scripts/services up"

const queues = 4 // of each topic

// stage is where the services play: a database and topics of this run's own.
type stage struct {
	cfg     Config
	dsn     string // of the demo's database
	suffix  string // of topics and groups
	brokers []remoting.BrokerAddr

	db   *gorm.DB
	lock *sql.Conn // held so that no second demo empties the database
}

// setUp makes the database anew, and the topics. Both stay after the run: the
// database to look at, the topics until tearDown.
func setUp(ctx context.Context, cfg Config) (*stage, error) {
	s := &stage{cfg: cfg, suffix: "-" + strings.ToLower(rand.Text()[:6])}
	ok := false
	defer func() {
		if !ok {
			s.close()
		}
	}()
	if err := s.database(ctx); err != nil {
		return nil, fmt.Errorf("database: %w\n%s", err, Hint)
	}
	if err := s.topics(ctx); err != nil {
		return nil, fmt.Errorf("broker: %w\n%s", err, Hint)
	}
	ok = true
	return s, nil
}

func (s *stage) database(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	parsed, err := mysql.ParseDSN(s.cfg.DSN)
	if err != nil {
		return err
	}
	own := parsed.Clone()
	own.DBName = s.cfg.Database
	s.dsn = own.FormatDSN()

	parsed.DBName = "" // the demo's may not exist yet
	admin, err := sql.Open("mysql", parsed.FormatDSN())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }() // after the lock's connection it has nothing open
	if s.lock, err = admin.Conn(ctx); err != nil {
		return err
	}
	var got sql.NullInt64
	if err := s.lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", "txmq demo "+s.cfg.Database).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another demo is using %s: wait for its end, or choose another with --database", s.cfg.Database)
	}
	name := "`" + strings.ReplaceAll(s.cfg.Database, "`", "``") + "`"
	for _, ddl := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := s.lock.ExecContext(ctx, ddl); err != nil {
			return err
		}
	}
	if s.db, err = shop.OpenDB(s.dsn); err != nil {
		return err
	}
	if err := shop.Migrate(ctx, s.db); err != nil {
		return err
	}
	return handwritten(s.db.WithContext(ctx))
}

// shop is the configuration of the run's shop, for what the demo itself needs
// of it.
func (s *stage) shop() shop.Config { return shop.Config{Suffix: s.suffix} }

// names are those of the run's topics.
func (s *stage) names() []string {
	return []string{s.shop().Topic(shop.Web), s.shop().Topic(shop.Market)}
}

func (s *stage) topics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	// A topic that every broker has, so this names every broker.
	if s.brokers, err = remoting.Brokers(ctx, s.cfg.NameServer, "TBW102"); err != nil {
		return fmt.Errorf("%w: %w", txmq.ErrBrokerUnreachable, err)
	}
	for _, topic := range s.names() {
		for _, b := range s.brokers {
			if err := remoting.CreateTopic(ctx, b.Addr, topic, queues, 6); err != nil {
				return err
			}
		}
		if err := until(ctx, 10*time.Second, func() (bool, error) {
			found, err := remoting.Brokers(ctx, s.cfg.NameServer, topic)
			return err == nil && len(found) == len(s.brokers), nil
		}); err != nil {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
	}
	return nil
}

// lag is how many messages the group has not acknowledged yet. Consumers tell
// the broker how far they are every 5 s.
func (s *stage) lag(ctx context.Context, group string) (lag int64, err error) {
	for _, b := range s.brokers {
		for _, topic := range s.names() {
			for q := range queues {
				at := map[string]string{"topic": topic, "queueId": strconv.Itoa(q), "consumerGroup": group}
				end, err := offset(ctx, b.Addr, remoting.GetMaxOffset, at)
				if err != nil {
					return 0, err
				}
				have, err := offset(ctx, b.Addr, remoting.QueryConsumerOffset, at)
				var code *remoting.CodeError
				none := errors.As(err, &code) && code.Code == remoting.ResQueryNotFound
				if err != nil && !none {
					return 0, err
				}
				lag += end - have
			}
		}
	}
	return lag, nil
}

func offset(ctx context.Context, addr string, code int, at map[string]string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	res, err := remoting.Call(ctx, addr, remoting.Request(code, at, nil))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(res.ExtFields["offset"], 10, 64)
}

// tearDown deletes the run's topics. What it can't delete does no harm.
func (s *stage) tearDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	doomed := s.names()
	for _, group := range []string{s.shop().ShareGroup(), naiveGroup(s.shop())} {
		doomed = append(doomed, "%RETRY%"+group, "%DLQ%"+group)
	}
	for _, topic := range doomed {
		name := map[string]string{"topic": topic}
		for _, b := range s.brokers {
			_, _ = remoting.Call(ctx, b.Addr, remoting.Request(remoting.DeleteTopicInBroker, name, nil))
		}
		_, _ = remoting.Call(ctx, s.cfg.NameServer, remoting.Request(remoting.DeleteTopicInNameSrv, name, nil))
	}
}

func (s *stage) close() {
	if s.db != nil {
		if pool, err := s.db.DB(); err == nil {
			_ = pool.Close()
		}
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

var errNotYet = errors.New("it did not come about in time")

// until looks every few milliseconds whether something has come about. At the
// end of its patience it gives errNotYet.
func until(ctx context.Context, patience time.Duration, look func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNotYet)
	defer cancel()
	for {
		ok, err := look()
		if ok || err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
