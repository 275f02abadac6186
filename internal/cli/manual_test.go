package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// buried makes a database with one DEAD record, whose message no broker has.
func buried(t *testing.T, handler string, change ...func(*model.Failure)) (dsn string, s *model.Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "txmq.db")
	dsn = "sqlite://" + path
	if r := command(t, "", "migrate", "up", "--dsn="+dsn); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	db, err := gorm.Open(sqlite.Open(path), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	s, err = model.Open(t.Context(), db, model.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := model.Failure{
		Arrival: model.Arrival{
			EventID: "pay:1", Consumer: handler, PayloadHash: sha256.Sum256([]byte("body")),
			At: model.Position{Topic: "order-paid", BrokerName: "broker-a", MsgID: "MSG", OffsetMsgID: "7F00000100005B4A000000FFFFFFFFFF"},
		},
		Dead: true, Err: errors.New("no stock"), Body: []byte("body"), Properties: map[string]string{"TXMQ_EVENT_ID": "pay:1"},
	}
	for _, c := range change {
		c(&f)
	}
	if err := s.Fail(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return dsn, s
}

func TestRetryDelivers(t *testing.T) {
	group := fmt.Sprintf("cli-%d", time.Now().UnixNano())
	retry := func(t *testing.T, dsn string, more ...string) result {
		t.Helper()
		return command(t, "", append([]string{"records", "retry", "pay:1", "--reason=r", "--dsn=" + dsn}, more...)...)
	}
	redriven := func(t *testing.T, s *model.Store, handler string) bool {
		t.Helper()
		r, err := s.Find(t.Context(), "pay:1", handler)
		if err != nil || r.Status != model.Fail {
			t.Fatalf("record = %+v, %v, want FAIL", r, err)
		}
		return r.Redriven()
	}
	t.Run("at once where a broker is named, and a dry run does not", func(t *testing.T) {
		ns := testenv.NameServer(t)
		dsn, s := buried(t, group+":order-paid")
		if r := retry(t, dsn, "--name-servers="+ns, "--dry-run"); r.code != exitOK {
			t.Fatal(r.stderr)
		}
		r := retry(t, dsn, "--name-servers="+ns)
		if r.code != exitOK || !strings.Contains(r.stdout, "delivered again: republish") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if !redriven(t, s, group+":order-paid") {
			t.Error("the record was not marked as redriven")
		}
	})
	t.Run("not where neither broker nor row has the message: FAIL as the line says, for a Compensator", func(t *testing.T) {
		ns := testenv.NameServer(t)
		dsn, s := buried(t, group+":order-paid", func(f *model.Failure) { f.Body, f.Properties = nil, nil })
		r := retry(t, dsn, "--name-servers="+ns)
		if r.code != exitOK || !strings.Contains(r.stdout, "not delivered: ") || !strings.Contains(r.stdout, "the row keeps no copy of it: only a Compensator can run it") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		redriven(t, s, group+":order-paid") // FAIL
	})
	t.Run("later where the broker is away, and the record is due all the same", func(t *testing.T) {
		dsn, s := buried(t, group+":order-paid")
		r := retry(t, dsn, "--name-servers=127.0.0.1:1")
		if r.code != exitOK || !strings.Contains(r.stdout, "not delivered: ") || !strings.Contains(r.stdout, "127.0.0.1:1") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		redriven(t, s, group+":order-paid")
	})
	t.Run("a handler whose name does not tell its group needs --handler-group", func(t *testing.T) {
		dsn, s := buried(t, "shares")
		r := retry(t, dsn, "--name-servers=127.0.0.1:1")
		if r.code != exitOK || !strings.Contains(r.stdout, `--handler-group "shares" is missing`) {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if redriven(t, s, "shares") {
			t.Error("a record without a way was marked as redriven")
		}
		r = retry(t, dsn, "--name-servers=127.0.0.1:1", "--handler-group=shares="+group)
		if r.code != exitOK || strings.Contains(r.stdout, "--handler-group") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("where none is named it is the job's", func(t *testing.T) {
		dsn, s := buried(t, group+":order-paid")
		if r := retry(t, dsn); r.code != exitOK || !strings.Contains(r.stdout, "the compensate job delivers it") {
			t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if redriven(t, s, group+":order-paid") {
			t.Error("redriven without a broker")
		}
	})
}
