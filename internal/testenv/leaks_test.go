package testenv

import (
	"context"
	"strings"
	"testing"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"go.uber.org/goleak"
)

// selfTest is a topic that every broker has.
const selfTest = "SELF_TEST_TOPIC"

// TestIgnoresCoverTheClient starts and stops each kind of client; what they
// leave behind must be covered, or every package's TestMain would fail.
//
// A Shutdown this soon after Start meets a request in flight, and the client
// has a data race there of its own (the flag rmqClient.close). Under -race it is
// reported as ours unless the client is compiled without, which make test does:
// -gcflags="github.com/apache/rocketmq-client-go/v2/...=-race=false -l" .
func TestIgnoresCoverTheClient(t *testing.T) {
	server := primitive.NewPassthroughResolver([]string{NameServer(t)})
	for name, start := range map[string]func(*testing.T, primitive.NsResolver) (stop func() error){
		"transactional producer": startProducer,
		"push consumer":          startConsumer,
		"orderly consumer":       startOrderly,
		"pull consumer":          startPull,
	} {
		t.Run(name, func(t *testing.T) {
			stop := start(t, server)
			if err := stop(); err != nil {
				t.Fatalf("Shutdown: %v", err)
			}
			if err := goleak.Find(ignores()...); err != nil {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}

// TestLeakedClientIsFound is the other side: the list must not hide a client
// that nobody shut down. It needs no server, since Start does not connect.
func TestLeakedClientIsFound(t *testing.T) {
	stop := startProducer(t, primitive.NewPassthroughResolver([]string{"127.0.0.1:1"}))
	err := goleak.Find(ignores()...)
	if err == nil || !strings.Contains(err.Error(), "rocketmq-client-go") {
		t.Errorf("Find with a running client = %v, want it reported", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestKnownLeaksAreExplained(t *testing.T) {
	for _, k := range known {
		if k.reason == "" {
			t.Errorf("%s is ignored without a reason", k.function)
		}
	}
}

type commit struct{}

func (commit) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func (commit) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func startProducer(t *testing.T, server primitive.NsResolver) func() error {
	p, err := rocketmq.NewTransactionProducer(commit{}, producer.WithNsResolver(server),
		producer.WithGroupName("testenv_p"), producer.WithInstanceName(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p.Shutdown
}

func startConsumer(t *testing.T, server primitive.NsResolver) func() error {
	return startPush(t, server, "testenv_c", false)
}

func startOrderly(t *testing.T, server primitive.NsResolver) func() error {
	return startPush(t, server, "testenv_o", true)
}

func startPush(t *testing.T, server primitive.NsResolver, group string, orderly bool) func() error {
	c, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(server), consumer.WithGroupName(group),
		consumer.WithInstance(t.Name()), consumer.WithConsumerOrder(orderly))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Subscribe(selfTest, consumer.MessageSelector{},
		func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c.Shutdown
}

func startPull(t *testing.T, server primitive.NsResolver) func() error {
	c, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(server),
		consumer.WithGroupName("testenv_pull"), consumer.WithInstance(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Assign(selfTest, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c.Shutdown
}
