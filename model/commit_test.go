package model

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gorm.io/gorm"

	"github.com/txmq/txmq"
)

// mute is a server that answers each COMMIT with what comes from its channel.
type mute struct {
	driver.Conn
	commits chan chan error
}

func (m *mute) Connect(context.Context) (driver.Conn, error)                 { return m, nil }
func (m *mute) Driver() driver.Driver                                        { return nil }
func (m *mute) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return m, nil }
func (m *mute) Close() error                                                 { return nil }
func (m *mute) Rollback() error                                              { return nil }
func (m *mute) Commit() error                                                { return <-<-m.commits }

// TestCommitWithoutAnswer: the time is synctest's.
func TestCommitWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{commits: make(chan chan error)}
		s := &Store{pool: sql.OpenDB(m), db: &gorm.DB{Config: &gorm.Config{}}, d: mysqlDialect(), texts: newTexts()}
		defer s.pool.Close()
		commit := func(answer chan error) error {
			tx, err := s.Begin(t.Context())
			want(t, err)
			go func() { m.commits <- answer }()
			return tx.Commit(t.Context())
		}
		ok := make(chan error, 10)
		ok <- nil
		want(t, commit(ok))

		late := make(chan error)
		began := time.Now()
		if err := commit(late); !errors.Is(err, txmq.ErrOutcomeUnknown) {
			t.Errorf("Commit = %v, want ErrOutcomeUnknown", err)
		}
		if took := time.Since(began); took != commitLimit {
			t.Errorf("Commit took %v, want %v", took, commitLimit)
		}
		late <- errors.New("late") // is nobody's any more
		synctest.Wait()
		for range 3 {
			ok <- nil
			want(t, commit(ok))
		}
		<-time.After(2 * commitLimit) // nor is a limit that was set for another
		ok <- nil
		want(t, commit(ok))
	})
}
