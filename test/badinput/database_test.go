package badinput

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

// opening are the ways to txmq's tables; a bad handle or prefix is met by all.
var opening = []struct {
	name string
	open func(context.Context, *gorm.DB, model.Config) error
}{
	{"Open", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.Open(ctx, db, c)
		return err
	}},
	{"Migrate", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.Migrate(ctx, db, c)
		return err
	}},
	{"MigrationStatus", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.MigrationStatus(ctx, db, c)
		return err
	}},
	{"PlanUp", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.PlanUp(ctx, db, c)
		return err
	}},
	{"PlanDown", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.PlanDown(ctx, db, c, 0)
		return err
	}},
	{"MigrateDown", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.MigrateDown(ctx, db, c, 0)
		return err
	}},
	{"PlanAdopt", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.PlanAdopt(ctx, db, c, model.AdoptConfig{Table: "effect"})
		return err
	}},
	{"Adopt", func(ctx context.Context, db *gorm.DB, c model.Config) error {
		_, err := model.Adopt(ctx, db, c, model.AdoptConfig{Table: "effect"})
		return err
	}},
}

func TestModel(t *testing.T) {
	t.Parallel()
	var rows []row
	for _, o := range opening {
		rows = append(rows, handles(o.name, o.open)...)
	}
	rows = append(rows,
		row{
			name: "Open without tables", says: []string{"prefix none_", "txmq migrate up"},
			call: func(t *testing.T, w *world) error {
				_, err := model.Open(t.Context(), w.db, model.Config{Prefix: "none_"})
				return err
			},
		},
		row{
			name: "Migrate over a table of somebody else's", says: []string{"table other_meta", "another prefix"},
			call: func(t *testing.T, w *world) error {
				must(t, w.db.Exec("CREATE TABLE other_meta (id INT)").Error)
				_, err := model.Migrate(t.Context(), w.db, model.Config{Prefix: "other_"})
				must(t, w.db.Exec("DROP TABLE other_meta").Error) // and with it all that was made, or the count says so
				return err
			},
		},
		row{
			name:   "Print for no database, with a bad prefix",
			fields: []field{{"model.Print dialect", "oracle", `"mysql"`}, {"model.Config.Prefix", "t;", "letters, digits"}},
			call: func(*testing.T, *world) error {
				_, err := model.Print("oracle", model.Config{Prefix: "t;"})
				return err
			},
		},
	)
	run(t, rows)
}

// handles are the rows about the *gorm.DB and the prefix.
func handles(name string, open func(context.Context, *gorm.DB, model.Config) error) []row {
	return []row{
		{
			name:   name + " of nothing, with a bad prefix",
			fields: []field{{"model." + name + " db", "", "*gorm.DB"}, {"model.Config.Prefix", "my-app.", "letters, digits"}},
			call: func(t *testing.T, _ *world) error {
				return open(t.Context(), nil, model.Config{Prefix: "my-app."})
			},
		},
		{
			name: name + " with an over-long prefix", fields: []field{{"model.Config.Prefix", "(33 bytes)", "at most 32"}},
			call: func(t *testing.T, w *world) error {
				return open(t.Context(), w.db, model.Config{Prefix: strings.Repeat("p", 33)})
			},
		},
		{
			name: name + " in a transaction", is: []error{txmq.ErrInTransaction},
			fields: []field{{"model." + name + " db", "transaction", "no transaction has begun"}},
			call: func(t *testing.T, w *world) error {
				tx := w.db.Begin()
				must(t, tx.Error)
				defer tx.Rollback()
				return open(t.Context(), tx, model.Config{})
			},
		},
		{
			name: name + " without parseTime", says: []string{"parseTime=true"},
			call: func(t *testing.T, w *world) error {
				return open(t.Context(), openGorm(t, strings.Replace(w.dsn, "parseTime=true", "parseTime=false", 1)), model.Config{})
			},
		},
		{
			name: name + " of a database that is not supported", says: []string{`"dummy" is not supported`, "use MySQL, MariaDB or SQLite"},
			call: func(t *testing.T, _ *world) error {
				db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{Logger: logger.Discard})
				must(t, err)
				return open(t.Context(), db, model.Config{})
			},
		},
		{
			name: name + " with a done context", is: []error{context.Canceled}, says: []string{"txmq: "},
			call: func(t *testing.T, w *world) error {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return open(ctx, w.db, model.Config{})
			},
		},
	}
}

// TestUnreachable: nothing answers, or somebody accepts and says nothing.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	t.Run("name server", func(t *testing.T) {
		t.Parallel()
		var rows []row
		for name, start := range map[string]func(*testing.T, *world, txmq.Broker) error{
			"Producer": func(t *testing.T, w *world, b txmq.Broker) error {
				c := w.config()
				c.Broker = b
				p, err := producer.New(c)
				must(t, err)
				t.Cleanup(func() { must(t, p.Close(context.Background())) })
				return p.Start(t.Context())
			},
			"Sender": func(t *testing.T, w *world, b txmq.Broker) error {
				c := w.senderConfig()
				c.Broker = b
				s, err := producer.NewSender(c)
				must(t, err)
				t.Cleanup(func() { must(t, s.Close(context.Background())) })
				return s.Start(t.Context())
			},
		} {
			rows = append(rows,
				row{
					name: name + ": nobody listens", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"name server 127.0.0.1:1, 127.0.0.1:2"},
					call: func(t *testing.T, w *world) error {
						return start(t, w, txmq.Broker{NameServers: []string{"127.0.0.1:1", "127.0.0.1:2"}})
					},
				},
				row{
					name: name + ": nobody answers", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"name server 127.0.0.1:"},
					within: 4 * time.Second, // 3 s each
					call: func(t *testing.T, w *world) error {
						return start(t, w, txmq.Broker{NameServers: []string{silent(t)}})
					},
				},
			)
		}
		run(t, rows)
	})
	t.Run("database", func(t *testing.T) {
		t.Parallel()
		var rows []row
		for _, o := range opening[:3] { // the others begin with the same words
			rows = append(rows,
				row{
					name: o.name + ": nobody listens", says: []string{"database at 127.0.0.1:1", "connection refused"},
					call: func(t *testing.T, _ *world) error {
						return o.open(t.Context(), away(t, "127.0.0.1:1"), model.Config{})
					},
				},
				row{
					name: o.name + ": nobody answers", is: []error{context.DeadlineExceeded}, says: []string{"database at 127.0.0.1:", "within 5s"},
					within: 6 * time.Second,
					call: func(t *testing.T, _ *world) error {
						return o.open(t.Context(), away(t, silent(t)), model.Config{})
					},
				},
				row{
					name: o.name + ": the caller's deadline is nearer", is: []error{context.DeadlineExceeded}, says: []string{"database at 127.0.0.1:"},
					call: func(t *testing.T, _ *world) error {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						defer cancel()
						return o.open(ctx, away(t, silent(t)), model.Config{})
					},
				},
			)
		}
		run(t, rows)
	})
}

// away is a handle whose server is at addr; gorm itself asks it nothing.
func away(t *testing.T, addr string) *gorm.DB {
	t.Helper()
	cfg := testenv.Through(t, "txmq:"+secret+"@tcp("+addr+")/orders?parseTime=true", testenv.Dial)
	db, err := gorm.Open(mysql.New(mysql.Config{DSNConfig: cfg, SkipInitializeWithVersion: true}),
		&gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	must(t, err)
	closeLater(t, db)
	return db
}

// silent listens, and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}
