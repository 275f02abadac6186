package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	client "github.com/apache/rocketmq-client-go/v2/producer"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/dbclock"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

const stale = 5 * time.Minute

var ann = model.By{Actor: "ann", Reason: "stock is back"}

// onVersions runs a test on each broker version, with a database clock that the
// test moves.
func onVersions(t *testing.T, name string, test func(*testing.T, *world, *dbclock.Offset)) {
	t.Helper()
	for _, v := range []string{"4.9.7", "5.3.3", "5.5.0"} {
		t.Run(name+" on "+v, func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, testenv.NameServerVersion(t, v), testenv.BrokerVersion(t, v))
			clock := new(dbclock.Offset)
			var err error
			w.store, err = model.Open(w.ctx, w.db, model.Config{Clock: clock})
			must(t, err)
			test(t, w, clock)
		})
	}
}

// jobs makes a runner that knows the world's handler; its jobs run when the test
// says so.
func (w *world) jobs(t *testing.T, seen *events, change ...func(*jobs.Config)) *jobs.Runner {
	t.Helper()
	cfg := jobs.Config{
		Store: w.store, Broker: w.broker(), Groups: map[string]string{w.handler: w.group},
		Sweep: jobs.SweepConfig{Every: -1}, Compensate: jobs.CompensateConfig{Every: -1}, Observe: seen.observe,
	}
	for _, f := range change {
		f(&cfg)
	}
	r, err := jobs.New(cfg)
	must(t, err)
	return r
}

// tick runs both jobs once, and gives how many rows compensate has dealt with.
func (w *world) tick(t *testing.T, r *jobs.Runner) int {
	t.Helper()
	_, err := r.RunOnce(w.ctx, "sweep")
	must(t, err)
	res, err := r.RunOnce(w.ctx, "compensate")
	must(t, err)
	return res.Done
}

// claimed has workers of the group claim so many events and die, while the
// broker believes that all is done: it will not deliver them again.
func (w *world) claimed(t *testing.T, n int) {
	t.Helper()
	w.raw(t, n, func(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
		a, err := arrival.Of(m, w.handler, arrival.EventID)
		if err == nil {
			_, err = w.store.Claim(ctx, a, "dead", time.Second, time.Second)
		}
		if err != nil {
			t.Error(err)
		}
		return rocketmq.Result{Kind: rocketmq.Ack}
	})
}

// raw runs a consumer of the group without txmq until it has handled n messages.
func (w *world) raw(t *testing.T, n int, handle func(context.Context, *primitive.MessageExt) rocketmq.Result) {
	t.Helper()
	var left sync.WaitGroup
	left.Add(n)
	c, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
		Broker: w.broker(), Group: w.group, Subscriptions: []rocketmq.Subscription{{Topic: w.topic}},
		Handle: func(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
			defer left.Done()
			return handle(ctx, m)
		},
	})
	must(t, err)
	must(t, c.Start(w.ctx))
	left.Wait()
	must(t, c.Close(w.ctx))
}

// stored is how many messages a topic with one queue has got.
func (w *world) stored(t *testing.T, topic string) int {
	t.Helper()
	if brokers, _ := w.keys.Brokers(w.ctx, w.ns, topic); len(brokers) == 0 {
		return 0
	}
	res, err := w.keys.Call(w.ctx, w.at, remoting.Request(remoting.GetMaxOffset, map[string]string{"topic": topic, "queueId": "0"}, nil))
	must(t, err)
	n, err := strconv.Atoi(res.ExtFields["offset"])
	must(t, err)
	return n
}

// ended waits for a delivery of the event with that outcome.
func (w *world) ended(t *testing.T, seen *events, event string, outcome txmq.Outcome) txmq.Delivered {
	t.Helper()
	return one(t, w, seen, fmt.Sprintf("%s is %s", event, outcome), func(d txmq.Delivered) bool {
		return d.EventID == event && d.Outcome == outcome
	})
}

// dead waits for the record to be DEAD.
func (w *world) dead(t *testing.T, event string) model.ConsumeRecord {
	t.Helper()
	w.until(t, event+" is DEAD", func() (bool, string) {
		r, err := w.store.Find(w.ctx, event, w.handler)
		return err == nil && r.Status == model.Dead, fmt.Sprintf("%+v, %v", r, err)
	})
	return w.record(t, event)
}

var errStock = errors.New("no stock")

func TestRedrive(t *testing.T) {
	t.Parallel()
	onVersions(t, "a row whose message the broker will not deliver again heals within two ticks", func(t *testing.T, w *world, clock *dbclock.Offset) {
		o, seen := w.observer(t), new(events)
		p := w.producer(t, new(events))
		names := []string{"a", "b", "c"}
		for _, e := range names {
			w.send(t, p, e)
		}
		w.claimed(t, len(names))
		w.consumer(t, seen)
		r := w.jobs(t, seen)

		clock.Add(time.Minute)
		if n := w.tick(t, r); n != 0 {
			t.Errorf("first tick redrove %d, want the sweep to come first", n)
		}
		clock.Add(stale)
		if n := w.tick(t, r); n != len(names) {
			t.Errorf("second tick redrove %d, want %d", n, len(names))
		}
		w.settled(t, names...)
		w.send(t, p, "marker")
		w.visible(t, o, "marker", 1)
		w.settled(t, "a", "b", "c", "marker")
		for _, e := range names {
			if n := o.count(e); n != 1 {
				t.Errorf("another group on the topic saw %s %d times, want once", e, n)
			}
		}
		clock.Add(24 * time.Hour)
		if n := w.tick(t, r); n != 0 {
			t.Errorf("a later tick redrove %d", n)
		}
	})

	onVersions(t, "B25 poison message: DEAD, in the dead-letter queue, and back by hand under its event ID", func(t *testing.T, w *world, _ *dbclock.Offset) {
		seen, fails := new(events), new(sync.Map)
		fails.Store("poison", true)
		p := w.producer(t, new(events))
		w.consumer(t, seen, func(c *consumer.Config) {
			c.MaxAttempts = 3
			c.Handlers[0].Do = consumer.Atomic(func(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
				err := w.share(ctx, tx, d)
				if bad, _ := fails.Load(d.EventID); bad == true {
					return errors.Join(err, fmt.Errorf("%w, attempt %d", errStock, d.Attempt))
				}
				return err
			})
		})
		r := w.jobs(t, seen)
		w.send(t, p, "poison")
		alert := w.ended(t, seen, "poison", txmq.OutcomeDead)
		if !errors.Is(alert.Err, errStock) || alert.Attempt != 3 {
			t.Errorf("alert %+v, want the third attempt's error", alert)
		}
		if rec := w.dead(t, "poison"); rec.RetryCnt != 2 || !strings.Contains(rec.LastError, "no stock, attempt 3") {
			t.Errorf("record %+v, want DEAD after 3 attempts with the last error", rec)
		}
		w.until(t, "the message is in the dead-letter queue", func() (bool, string) {
			n := w.stored(t, "%DLQ%"+w.group)
			return n == 1, fmt.Sprint(n)
		})

		// One more attempt is one more.
		must(t, w.store.Retry(w.ctx, w.record(t, "poison"), ann))
		if n := w.tick(t, r); n != 1 {
			t.Errorf("tick after the retry redrove %d", n)
		}
		w.until(t, "it failed again", func() (bool, string) {
			rec := w.record(t, "poison")
			return rec.Status == model.Dead && rec.Version > 4, fmt.Sprintf("%+v", rec)
		})
		fails.Delete("poison")
		must(t, w.store.Retry(w.ctx, w.record(t, "poison"), ann))
		if way, err := r.Redrive(w.ctx, "poison", w.handler); way != txmq.RedriveSendBack || err != nil {
			t.Errorf("Redrive = %q, %v", way, err)
		}
		w.ended(t, seen, "poison", txmq.OutcomeDone)
		w.settled(t, "poison")
		if err := w.store.Retry(w.ctx, w.record(t, "poison"), ann); err == nil {
			t.Error("a third retry of what is done went through")
		}
	})

	onVersions(t, "a retry by hand that races the job has one effect", func(t *testing.T, w *world, _ *dbclock.Offset) {
		seen := new(events)
		p := w.producer(t, new(events))
		w.send(t, p, "a")
		w.raw(t, 1, func(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
			a, err := arrival.Of(m, w.handler, arrival.EventID)
			must(t, errors.Join(err, w.store.Fail(ctx, model.Failure{Arrival: a, Dead: true, Err: errStock})))
			return rocketmq.Result{Kind: rocketmq.Ack}
		})
		w.consumer(t, seen)
		proxy := w.proxy(t)
		through := func(c *jobs.Config) { c.Broker.NameServers = []string{proxy.NameServer()} }
		rec := w.record(t, "a")
		var wg sync.WaitGroup
		for range 3 {
			r := w.jobs(t, seen, through)
			wg.Go(func() { _ = w.store.Retry(w.ctx, rec, ann) })
			wg.Go(func() { _, _ = r.RunOnce(w.ctx, "compensate") })
			wg.Go(func() { _, _ = r.Redrive(w.ctx, "a", w.handler) })
		}
		wg.Wait()
		w.tick(t, w.jobs(t, seen, through)) // where all looked too early
		w.settled(t, "a")
		if n := proxy.Count(remoting.ConsumerSendMsgBack); n != 1 {
			t.Errorf("%d copies were asked for, want 1", n)
		}
	})

	onVersions(t, "B88 a handler that keeps failing gets one copy an interval, and no retry of the broker beside it", func(t *testing.T, w *world, clock *dbclock.Offset) {
		seen := new(events)
		p := w.producer(t, new(events))
		w.send(t, p, "a")
		w.claimed(t, 1)
		proxy := w.proxy(t)
		var mu sync.Mutex
		plain := 0 // sends to a retry topic
		defer proxy.Observe(func(_ wireproxy.Dir, f remoting.Frame) {
			topic := f.ExtFields["topic"] + f.ExtFields["b"] // 10's name, and 310's
			if !f.IsResponse() && (f.Code == remoting.SendMessage || f.Code == remoting.SendMessageV2) && strings.HasPrefix(topic, "%RETRY%") {
				mu.Lock()
				defer mu.Unlock()
				plain++
			}
		})()
		w.consumer(t, seen, func(c *consumer.Config) {
			c.Broker.NameServers = []string{proxy.NameServer()}
			c.Handlers[0].Do = consumer.Atomic(func(context.Context, *gorm.DB, *consumer.Delivery) error { return errStock })
		})
		r := w.jobs(t, seen, func(c *jobs.Config) { c.Broker.NameServers = []string{proxy.NameServer()} })
		clock.Add(time.Minute)
		w.tick(t, r)
		for interval := 1; interval <= 2; interval++ {
			clock.Add(stale + time.Minute)
			for range 10 {
				w.tick(t, r)
				clock.Add(20 * time.Second)
			}
			w.until(t, "the copy has failed", func() (bool, string) {
				n := len(of[txmq.Delivered](seen))
				return n == interval, fmt.Sprint(n)
			})
			mu.Lock()
			sends := plain
			mu.Unlock()
			if n := proxy.Count(remoting.ConsumerSendMsgBack); n != interval || sends != 0 {
				t.Errorf("interval %d: %d requests 36 in all, %d sends to a retry topic; want %d and 0", interval, n, sends, interval)
			}
			if rec := w.record(t, "a"); rec.Status != model.Fail || rec.RetryCnt != interval {
				t.Errorf("interval %d: record %+v", interval, rec)
			}
		}
		must(t, w.store.Resolve(w.ctx, w.record(t, "a"), ann))
		if n := w.number(t, "SELECT COUNT(*) FROM e2e_share"); n != 0 {
			t.Errorf("%d effects of a handler that always fails", n)
		}
	})

	onVersions(t, "B89 DEAD row whose message the broker has deleted comes from the row", func(t *testing.T, w *world, _ *dbclock.Offset) {
		o, seen := w.observer(t), new(events)
		p := w.producer(t, new(events))
		w.send(t, p, "a")
		body := ""
		w.raw(t, 1, func(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
			// The place is of a commit log that ends before it, as after retention.
			m.OffsetMsgId = m.OffsetMsgId[:16] + "00000FFFFFFFFF00"
			a, err := arrival.Of(m, w.handler, arrival.EventID)
			body = string(m.Body)
			must(t, errors.Join(err, w.store.Fail(ctx, model.Failure{
				Arrival: a, Dead: true, Err: errStock, Body: m.Body, Properties: m.GetProperties(),
			})))
			return rocketmq.Result{Kind: rocketmq.Ack}
		})
		got := make(chan string, 10)
		w.consumer(t, seen, func(c *consumer.Config) {
			c.Handlers[0].Do = consumer.Atomic(func(ctx context.Context, tx *gorm.DB, d *consumer.Delivery) error {
				got <- d.Topic + " " + d.EventID + " " + string(d.Body)
				return w.share(ctx, tx, d)
			})
		})
		r := w.jobs(t, seen)
		must(t, w.store.Retry(w.ctx, w.record(t, "a"), ann))
		if n := w.tick(t, r); n != 1 {
			t.Errorf("tick redrove %d", n)
		}
		w.settled(t, "a")
		if text := <-got; text != w.topic+" a "+body || len(got) != 0 {
			t.Errorf("delivered %q and %d more, want the original once", text, len(got))
		}
		if all := of[txmq.Redriven](seen); len(all) != 1 || all[0].Way != txmq.RedriveRepublish || all[0].Err != nil {
			t.Errorf("events %+v, want one republish", all)
		}
		w.send(t, p, "marker")
		w.visible(t, o, "marker", 1)
		w.settled(t, "a", "marker")
		if n := o.count("a"); n != 1 {
			t.Errorf("another group saw it %d times, want once", n)
		}
	})
}

func TestDeadLetterIntake(t *testing.T) {
	t.Parallel()
	onVersions(t, "B26 dead letters without a record are recorded, and come back as the same event", func(t *testing.T, w *world, _ *dbclock.Offset) {
		seen := new(events)
		p := w.producer(t, new(events))
		w.send(t, p, "given-up") // by a consumer without txmq
		w.raw(t, 1, func(context.Context, *primitive.MessageExt) rocketmq.Result {
			return rocketmq.Result{Kind: rocketmq.DeadLetter}
		})
		w.until(t, "the dead-letter queue has it", func() (bool, string) { return w.stored(t, "%DLQ%"+w.group) == 1, "" })
		w.send(t, p, "no-origin") // and one that tells nothing of where it came from
		var copied *primitive.MessageExt
		w.raw(t, 1, func(_ context.Context, m *primitive.MessageExt) rocketmq.Result {
			copied = m
			return rocketmq.Result{Kind: rocketmq.Ack}
		})
		dlq := func() *primitive.Message {
			m := primitive.NewMessage("%DLQ%"+w.group, copied.Body)
			m.WithProperty(txmq.PropertyEventID, "no-origin")
			m.WithProperty(primitive.PropertyRetryTopic, w.topic)
			return m
		}
		w.put(t, dlq())

		r := w.jobs(t, seen, w.takesIn)
		w.running(t, r)
		for _, e := range []string{"given-up", "no-origin"} {
			if rec := w.dead(t, e); rec.Position.Topic != w.topic {
				t.Errorf("record %+v, want the original topic", rec)
			}
		}
		w.consumer(t, seen)
		for _, e := range []string{"given-up", "no-origin"} {
			must(t, w.store.Retry(w.ctx, w.record(t, e), ann))
		}
		if n := w.tick(t, r); n != 2 {
			t.Errorf("tick redrove %d, want 2", n)
		}
		w.settled(t, "given-up", "no-origin")
		for _, e := range of[txmq.Redriven](seen) {
			if e.Way != txmq.RedriveSendBack || e.Err != nil {
				t.Errorf("event %+v, want it sent back from the dead-letter queue", e)
			}
		}
		// The original, and the dead letter once more: both are that event.
		again := primitive.NewMessage(w.topic, copied.Body)
		again.WithProperty(txmq.PropertyEventID, "no-origin")
		w.put(t, again)
		w.put(t, dlq())
		w.ended(t, seen, "no-origin", txmq.OutcomeDuplicate)
		w.settled(t, "given-up", "no-origin")
		if n := len(of[txmq.DeadLetterFound](seen)); n != 2 {
			t.Errorf("%d dead letters without a record, want 2", n)
		}
	})
}

// takesIn has a runner take in the world's dead letters.
func (w *world) takesIn(c *jobs.Config) {
	c.DeadLetters = []jobs.DeadLetter{{Group: w.group, Handlers: []consumer.Handler{{Topic: w.topic, Name: w.handler}}}}
}

// running runs a runner until the test ends.
func (w *world) running(t *testing.T, r *jobs.Runner) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
}

// put sends a message as it is, by the bare client: txmq refuses system topics.
func (w *world) put(t *testing.T, m *primitive.Message) {
	t.Helper()
	p, err := client.NewDefaultProducer(
		client.WithNsResolver(primitive.NewPassthroughResolver([]string{w.ns})), client.WithGroupName("p-"+w.topic),
		client.WithInstanceName(fmt.Sprintf("%s-%d", w.topic, time.Now().UnixNano())))
	must(t, err)
	must(t, p.Start())
	defer func() { must(t, p.Shutdown()) }()
	_, err = p.SendSync(w.ctx, m)
	must(t, err)
}
