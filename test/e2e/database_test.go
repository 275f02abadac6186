package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
)

var errAway = errors.New("the test has cut the database off")

// plug stands on the way to MariaDB and takes it away, which is what a restart
// looks like from here: every connection breaks, and none can be made.
type plug struct{ away atomic.Bool }

func (p *plug) dial(ctx context.Context, addr string) (net.Conn, error) {
	if p.away.Load() {
		return nil, errAway
	}
	conn, err := testenv.Dial(ctx, addr)
	return &plugged{Conn: conn, p: p}, err
}

type plugged struct {
	net.Conn
	p *plug
}

func (c *plugged) Write(b []byte) (int, error) {
	if c.p.away.Load() {
		return 0, errAway
	}
	return c.Conn.Write(b)
}

// Read drops an answer that comes when the database is away, that of a COMMIT
// too.
func (c *plugged) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.p.away.Load() {
		return 0, errAway
	}
	return n, err
}

// apart is a store on the world's database that the plug takes away.
func (w *world) apart(t *testing.T) (*plug, *model.Store) {
	t.Helper()
	p := new(plug)
	store, err := model.Open(w.ctx, openGorm(t, testenv.Through(t, w.dsn, p.dial).FormatDSN()), model.Config{})
	must(t, err)
	return p, store
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	t.Run("B74 away for longer than the broker retries", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		limitRetries(t, w, 2)
		plug, store := w.apart(t)
		seen := new(events)
		w.consumer(t, seen, func(c *consumer.Config) { c.Store = store })
		p := w.producer(t, new(events))
		plug.away.Store(true)
		w.send(t, p, "a")
		w.send(t, p, "b")
		w.until(t, "six deliveries of each in vain", func() (bool, string) {
			n := map[string]int{}
			for _, d := range of[txmq.Delivered](seen) {
				if d.Outcome != txmq.OutcomeRetry {
					t.Errorf("delivery without a database = %+v, want retry", d)
				}
				n[d.EventID]++
			}
			return n["a"] >= 6 && n["b"] >= 6, fmt.Sprint(n)
		})
		plug.away.Store(false)
		w.settled(t, "a", "b")
		wantRecord(t, w, "a", 0) // what is not the event's fault costs it no attempt
		if brokers, err := remoting.Brokers(w.ctx, w.ns, "%DLQ%"+w.group); err == nil {
			t.Errorf("the group has a dead-letter queue at %v, want none", brokers)
		}
	})

	t.Run("restarted twice under load", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		plug, store := w.apart(t)
		w.consumer(t, new(events), func(c *consumer.Config) { c.Store = store })
		seen := new(events)
		p := w.producer(t, seen, func(c *producer.Config) { c.Store = store })

		var sends sync.WaitGroup
		stop := make(chan struct{})
		for s := range 3 {
			sends.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						resent(t, w, p, fmt.Sprintf("%d-%d", s, n))
					}
				}
			})
		}
		for range 2 {
			good := len(of[txmq.SendEnded](seen)) + 6
			w.until(t, "some sends", func() (bool, string) { return len(of[txmq.SendEnded](seen)) >= good, "" })
			plug.away.Store(true)
			one(t, w, seen, "a failed send", func(e txmq.SendEnded) bool { return e.Err != nil })
			hold, back := context.WithTimeout(w.ctx, time.Second)
			<-hold.Done()
			back()
			plug.away.Store(false)
		}
		close(stop)
		sends.Wait()
		w.until(t, "all consumed", func() (bool, string) { c := w.tally(t); return c.lost == 0 && c.open == 0, c.String() })
		w.check(t)
		// A half whose end was unknown to the caller has been answered, too.
		for _, e := range of[txmq.SendEnded](seen) {
			if errors.Is(e.Err, txmq.ErrOutcomeUnknown) {
				w.attempt(t, e.Attempt)
			}
		}
		w.check(t)
	})
}

// resent sends an event until it has committed, as a caller does who must.
func resent(t *testing.T, w *world, p *producer.Producer, event string) {
	for w.ctx.Err() == nil {
		_, err := p.SendInTransaction(w.ctx, w.message(event), w.order(event))
		for errors.Is(err, txmq.ErrOutcomeUnknown) && w.ctx.Err() == nil {
			if v, resolved := p.Resolve(w.ctx, err); resolved == nil {
				if err = nil; v == txmq.Rollback {
					err = errAway
				}
			}
		}
		if err == nil || errors.Is(err, txmq.ErrDuplicateEvent) {
			return
		}
		if strings.Contains(err.Error(), "panic") {
			t.Errorf("send of %s: %v", event, err)
		}
	}
}

// limitRetries tells the broker to bury the group's messages after n retries,
// where the default is 16.
func limitRetries(t *testing.T, w *world, n int) {
	t.Helper()
	const updateSubscriptionGroup = 200
	body := fmt.Sprintf(`{"groupName":%q,"retryMaxTimes":%d,"retryQueueNums":1,"consumeEnable":true,"brokerId":0,`+
		`"whichBrokerWhenConsumeSlowly":1,"notifyConsumerIdsChangedEnable":true}`, w.group, n)
	_, err := remoting.Call(w.ctx, testenv.Broker(t), remoting.Request(updateSubscriptionGroup, nil, []byte(body)))
	must(t, err)
}
