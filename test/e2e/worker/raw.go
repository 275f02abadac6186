package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"gorm.io/gorm"

	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// rawProducer is the client's own, as a service has it that keeps it.
type rawProducer struct {
	s        *service
	listener *checker.Listener
	client   rocketmq.TransactionProducer
}

func (s *service) newRawProducer(nameServer string) (*rawProducer, error) {
	l, err := checker.NewListener(checker.Config{
		Store: s.store, FenceAfter: s.setup.FenceAfter, Interval: time.Second, Observe: s.observe, Logger: s.log,
	}, func(tx *gorm.DB, m *primitive.Message) error {
		var c protocol.Command
		if err := json.Unmarshal([]byte(m.GetProperty("command")), &c); err != nil {
			return err
		}
		return s.local(tx, c)
	})
	if err != nil {
		return nil, err
	}
	client, err := rocketmq.NewTransactionProducer(l,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		producer.WithGroupName(s.setup.ProducerGroup),
		producer.WithInstanceName(fmt.Sprintf("%s-%d", s.setup.ProducerGroup, os.Getpid())),
		producer.WithRetry(0), producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	return &rawProducer{s, l, client}, client.Start()
}

func (p *rawProducer) send(ctx context.Context, c protocol.Command) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	m := primitive.NewMessage(p.s.setup.Topic, []byte(c.Body))
	m.WithProperty("command", string(text))
	if err := p.listener.Stamp(m, c.Event); err != nil {
		return err
	}
	res, err := p.client.SendMessageInTransaction(ctx, m)
	if err == nil && res.State != primitive.CommitMessageState {
		err = fmt.Errorf("state %d", res.State)
	}
	return err
}

func (p *rawProducer) close(ctx context.Context) error {
	return errors.Join(p.listener.Close(ctx), p.client.Shutdown())
}
