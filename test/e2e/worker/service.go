package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/wireproxy"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
	"github.com/txmq/txmq/producer"
	"github.com/txmq/txmq/test/e2e/protocol"
)

type service struct {
	setup   protocol.Setup
	log     *slog.Logger
	out     *printer
	release chan struct{}

	store *model.Store
	prod  *producer.Producer
	raw   *rawProducer
	proxy *wireproxy.Proxy
}

// run is the service's life, from connect to a clean stop.
func (s *service) run(ctx context.Context, queue <-chan protocol.Command, stop <-chan struct{}) (err error) {
	pool, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool()) }()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	if err := s.startProducer(ctx); err != nil {
		return err
	}
	ended := make(chan error, 2)
	if err := s.startConsumer(ctx, &wg, ended); err != nil {
		return err
	}
	if s.setup.Jobs {
		if err := s.startJobs(ctx, &wg, ended); err != nil {
			return err
		}
	}
	s.out.line(protocol.Line{Type: protocol.Ready})
	for {
		select {
		case c := <-queue:
			s.do(ctx, c)
		case err := <-ended:
			return fmt.Errorf("ended by itself: %w", err)
		case <-stop:
			cancel()
			wg.Wait()
			if s.prod != nil {
				err = s.prod.Close(context.WithoutCancel(ctx))
			}
			if s.raw != nil {
				err = s.raw.close(context.WithoutCancel(ctx))
			}
			if s.proxy != nil {
				s.proxy.Close()
			}
			s.out.line(protocol.Line{Type: protocol.Stopped, Hits: hits()})
			return err
		}
	}
}

func (s *service) open(ctx context.Context) (closePool func() error, err error) {
	db, err := gorm.Open(mysql.Open(s.setup.DSN), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(12)
	pool.SetMaxIdleConns(12)
	s.store, err = model.Open(ctx, db, model.Config{})
	return pool.Close, err
}

func (s *service) startProducer(ctx context.Context) (err error) {
	if s.setup.ProducerGroup == "" {
		return nil
	}
	at := s.setup.NameServer
	if s.setup.Proxy {
		if s.proxy, err = wireproxy.Start(ctx, at); err != nil {
			return err
		}
		at = s.proxy.NameServer()
	}
	if s.setup.Raw {
		s.raw, err = s.newRawProducer(at)
		return err
	}
	s.prod, err = producer.New(producer.Config{
		Store: s.store, Broker: txmq.Broker{NameServers: []string{at}}, Group: s.setup.ProducerGroup,
		Topics: []string{s.setup.Topic}, FenceAfter: s.setup.FenceAfter, CheckInterval: time.Second,
		SendTimeout: 10 * time.Second, // the machine is busy, and a retry would be one more half
		Observe:     s.observe, Logger: s.log,
	})
	if err != nil {
		return err
	}
	return s.prod.Start(ctx)
}

func (s *service) startConsumer(ctx context.Context, wg *sync.WaitGroup, ended chan<- error) error {
	if s.setup.ConsumerGroup == "" {
		return nil
	}
	do := consumer.Atomic(s.handle)
	switch {
	case s.setup.Tracked:
		do = consumer.Tracked(s.handle)
	case s.setup.External:
		do = consumer.External(s.callOutside)
	}
	c, err := consumer.New(consumer.Config{
		Store: s.store, Broker: txmq.Broker{NameServers: []string{s.setup.NameServer}}, Group: s.setup.ConsumerGroup,
		Handlers: []consumer.Handler{{Topic: s.setup.Topic, Name: s.setup.Handler, Do: do}},
		Workers:  4, Lease: s.setup.Lease, Deadline: s.setup.Deadline, MaxAttempts: s.setup.MaxAttempts,
		Observe: s.observe, Logger: s.log,
	})
	if err != nil {
		return err
	}
	wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			ended <- err
		}
	})
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return c.Ready(ready)
}

func (s *service) startJobs(ctx context.Context, wg *sync.WaitGroup, ended chan<- error) error {
	j, err := jobs.New(jobs.Config{
		Store: s.store, Sweep: jobs.SweepConfig{Every: time.Second}, Lease: 2 * time.Second,
		Observe: s.observe, Logger: s.log,
	})
	if err != nil {
		return err
	}
	wg.Go(func() {
		if err := j.Run(ctx); err != nil {
			ended <- err
		}
	})
	return nil
}

func (s *service) do(ctx context.Context, c protocol.Command) {
	var err error
	switch c.Do {
	case protocol.DoSend:
		for range max(c.Tries, 1) {
			err = s.send(ctx, c)
			if err == nil || errors.Is(err, txmq.ErrDuplicateEvent) || errors.Is(err, errRefused) {
				break
			}
		}
	case protocol.DoOrphan:
		err = s.orphan(ctx, c)
	default:
		err = fmt.Errorf("what is %q?", c.Do)
	}
	s.out.line(protocol.Line{Type: protocol.Sent, Event: c.Event, Err: text(err)})
}

var errRefused = errors.New("the business said no")

// send is one call, in which a panic is an error, as in a server.
func (s *service) send(ctx context.Context, c protocol.Command) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if c.LoseEnd {
		lost := s.proxy.Inject(wireproxy.Fault{
			Code: remoting.EndTransaction, Action: wireproxy.DropRequest, Count: 1,
			Match: func(f remoting.Frame) bool { return f.ExtFields["fromTransactionCheck"] != "true" },
		})
		defer func() {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // after an error there may be none to lose
			defer cancel()
			_ = lost.Wait(ctx, 1)
			lost.Remove()
		}()
	}
	if s.raw != nil {
		return s.raw.send(ctx, c)
	}
	m := txmq.Message{Topic: s.setup.Topic, EventID: c.Event, Body: []byte(c.Body)}
	_, err = s.prod.SendInTransaction(ctx, m, func(tx *gorm.DB) error { return s.local(tx, c) })
	return err
}

// local is the local transaction of a send.
func (s *service) local(tx *gorm.DB, c protocol.Command) error {
	if err := tx.Exec("INSERT INTO e2e_order (event) VALUES (?)", c.Event).Error; err != nil {
		return err
	}
	if c.Hold {
		s.out.line(protocol.Line{Type: protocol.Local, Event: c.Event})
		<-s.release
	}
	if c.Fail {
		return errRefused
	}
	return nil
}

// orphan leaves what a Tracked worker leaves that died long ago, and waits until
// the sweep has met it.
func (s *service) orphan(ctx context.Context, c protocol.Command) error {
	claimed, err := s.store.Claim(ctx, model.Arrival{
		EventID: c.Event, Consumer: s.setup.Handler, PayloadHash: sha256.Sum256([]byte(c.Body)),
		At: model.Position{Topic: s.setup.Topic},
	}, "a dead worker", time.Millisecond, time.Second)
	if err != nil || claimed.Decision != model.Run {
		return err
	}
	ctx, swept := context.WithCancel(ctx)
	defer swept()
	return loop.Loop{Interval: 50 * time.Millisecond, Step: func(ctx context.Context) (bool, error) {
		r, err := s.store.Find(ctx, c.Event, s.setup.Handler)
		if err == nil && r.Status != model.Processing {
			swept()
		}
		return false, err
	}}.Run(ctx)
}

// handle is the handler of the modes with a transaction.
func (s *service) handle(_ context.Context, tx *gorm.DB, d *consumer.Delivery) error {
	return s.work(d, func() error { return s.share(tx, d) })
}

// callOutside is that of External. The other side notes each call, and does what
// it has not done for that event before.
func (s *service) callOutside(ctx context.Context, d *consumer.Delivery) error {
	return s.work(d, func() error {
		return s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var before int64
			if err := tx.Raw("SELECT COUNT(*) FROM e2e_outside WHERE event = ?", d.EventID).Scan(&before).Error; err != nil {
				return err
			}
			if err := tx.Exec("INSERT INTO e2e_outside (event, version) VALUES (?, ?)", d.EventID, d.Version).Error; err != nil || before > 0 {
				return err
			}
			return s.share(tx, d)
		})
	})
}

func (s *service) work(d *consumer.Delivery, effect func() error) error {
	s.out.line(protocol.Line{Type: protocol.Handler, Event: d.EventID, Run: d.Attempt})
	var body protocol.Body
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return consumer.Permanent(err)
	}
	if d.Attempt <= body.Fail {
		return fmt.Errorf("run %d fails as it was told", d.Attempt)
	}
	s.hold(s.setup.HoldBefore, d.EventID)
	if err := effect(); err != nil {
		return err
	}
	s.hold(s.setup.HoldAfter, d.EventID)
	if slices.Contains(s.setup.Kill, d.EventID) {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = self.Kill()
		select {}
	}
	return nil
}

// share adds a share and its sum, with no key that would hide a second one.
func (s *service) share(tx *gorm.DB, d *consumer.Delivery) error {
	if err := tx.Exec("INSERT INTO e2e_share (event, handler) VALUES (?, ?)", d.EventID, s.setup.Handler).Error; err != nil {
		return err
	}
	return tx.Exec("UPDATE e2e_balance SET amount = amount + 10").Error
}

func (s *service) hold(events []string, event string) {
	if slices.Contains(events, event) {
		s.out.line(protocol.Line{Type: protocol.Holding, Event: event})
		<-s.release
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
