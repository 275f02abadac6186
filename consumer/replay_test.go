package consumer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	gomysql "github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

// counter counts the statements on the connections to MariaDB by their first
// two words.
type counter struct {
	mu   sync.Mutex
	seen map[string]int
}

func throughCounter(t *testing.T) (gorm.Dialector, *counter) {
	t.Helper()
	c := &counter{seen: map[string]int{}}
	connector, err := gomysql.NewConnector(testenv.Through(t, testenv.MySQL(t), func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := testenv.Dial(ctx, addr)
		return countedConn{conn, c}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return mysql.New(mysql.Config{Conn: sql.OpenDB(connector)}), c
}

type countedConn struct {
	net.Conn
	c *counter
}

func (n countedConn) Write(p []byte) (int, error) {
	if len(p) > 5 && p[4] == 3 { // COM_QUERY
		words := strings.Fields(string(p[5:min(len(p), 200)]))
		if len(words) > 3 && strings.Join(words[:2], " ") == "SET STATEMENT" {
			words = words[4:] // innodb_lock_wait_timeout=1 FOR
		}
		n.c.mu.Lock()
		n.c.seen[strings.Join(words[:min(len(words), 2)], " ")]++
		n.c.mu.Unlock()
	}
	return n.Conn.Write(p)
}

func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = map[string]int{}
	return seen
}

func TestReplayCosts(t *testing.T) {
	t.Parallel()
	const messages = 1000
	for name, want := range map[string]map[string]int{
		"atomic":  {"SET TRANSACTION": messages, "START TRANSACTION": messages, "INSERT INTO": messages, "SELECT id,": messages, "ROLLBACK": messages},
		"tracked": {"INSERT INTO": messages, "SELECT id,": messages},
	} {
		t.Run("B43 a replayed message is recognised by few statements, and waits for none, "+name, func(t *testing.T) {
			t.Parallel()
			through, count := throughCounter(t)
			b := setup(t, through, &gorm.Config{})
			runs := 0
			var mu sync.Mutex
			c := b.consumer(t, modes()[name](func(context.Context, *gorm.DB, *Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				runs++
				return nil
			}))
			pass := func() {
				var wg sync.WaitGroup
				for w := range 8 {
					wg.Go(func() {
						for i := w; i < messages; i += 8 {
							m := message(fmt.Sprintf("replay:%d", i), "x") // ReconsumeTimes is 0
							if got := c.deliver(t.Context(), m); got.Kind != rocketmq.Ack {
								t.Errorf("delivery = %+v, want it acknowledged", got)
							}
						}
					})
				}
				wg.Wait()
			}
			pass()
			count.take()
			b.mu.Lock()
			b.events = nil
			b.mu.Unlock()
			pass()
			if diff := cmp.Diff(want, count.take()); diff != "" {
				t.Errorf("statements (-want +got):\n%s", diff)
			}
			for _, d := range seen[txmq.Delivered](b) {
				if d.Outcome != txmq.OutcomeDuplicate || d.Err != nil { // a wait would end as in progress
					t.Errorf("delivered = %+v, want a duplicate", d)
				}
			}
			if runs != messages {
				t.Errorf("%d runs, want one a message", runs)
			}
		})
	}
}

// The other half of this case is a front cache's, which has to forget a failure.
func TestNoMarkerIsLeft(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, b *bundle, mode func(Func) Work) {
		t.Run("B48 without a cache, a handler that fails leaves no marker that would skip it", func(t *testing.T) {
			fails := true
			c := b.consumer(t, mode(func(ctx context.Context, tx *gorm.DB, d *Delivery) error {
				if err := pay(ctx, tx, d); err != nil || !fails {
					return err
				}
				return errors.New("after its work")
			}))
			want(t, c.deliver(t.Context(), message("marked", "x")), rocketmq.Retry)
			fails = false
			want(t, c.deliver(t.Context(), message("marked", "x")), rocketmq.Ack)
			want(t, c.deliver(t.Context(), message("marked", "x")), rocketmq.Ack)
			if n := b.effects(t, "marked"); n != 1 {
				t.Errorf("effects = %d, want 1", n)
			}
			if r := b.record(t, "marked"); r.Status != model.Success || r.RetryCnt != 1 {
				t.Errorf("record = %+v, want SUCCESS in its second run", r)
			}
		})
	})
}
