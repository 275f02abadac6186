package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/remoting"
)

const (
	// askTimeout is how long one name server may take to answer. Start with n
	// name servers, all of them silent, fails after n times this.
	askTimeout = 3 * time.Second

	// selfTestTopic is on every broker.
	selfTestTopic = "SELF_TEST_TOPIC"
)

// ErrNoTopic: no name server knows the topic. It comes with txmq.ErrRefused, which
// alone may also be a want of permission.
var ErrNoTopic = errors.New("does not exist")

// brokersOf asks one name server after the other which brokers hold the topic.
// A topic that none knows wraps txmq.ErrRefused and ErrNoTopic; no answer at all wraps
// txmq.ErrBrokerUnreachable and names the addresses.
func brokersOf(ctx context.Context, b txmq.Broker, topic string) ([]remoting.BrokerAddr, error) {
	var failed error
	unknown := false
	for _, ns := range b.NameServers {
		brokers, err := ask(ctx, remoting.KeysOf(b), ns, topic)
		var code *remoting.CodeError
		switch {
		case err == nil && len(brokers) > 0:
			return brokers, nil
		case err == nil, errors.As(err, &code) && code.Code == remoting.ResTopicNotExist:
			unknown = true // one that has just started knows nothing yet: ask the next
			continue
		}
		failed = err
	}
	if unknown {
		return nil, fmt.Errorf("%w: topic %q %w: create it, or have the broker do so (autoCreateTopicEnable)",
			txmq.ErrRefused, topic, ErrNoTopic)
	}
	return nil, fmt.Errorf("%w: name server %s: %w", txmq.ErrBrokerUnreachable, strings.Join(b.NameServers, ", "), failed)
}

func ask(ctx context.Context, keys remoting.Keys, nameServer, topic string) ([]remoting.BrokerAddr, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return keys.Brokers(ctx, nameServer, topic)
}

// noRoute says why the client found no queue to send to: the name server is
// away, or no broker has registered at it, or the topic does not exist. A topic
// whose only brokers are down while others are up looks as if it did not exist.
func noRoute(ctx context.Context, b txmq.Broker, topic string) error {
	_, err := brokersOf(ctx, b, topic)
	if err == nil {
		return fmt.Errorf("%w: topic %q has no broker that accepts messages now", txmq.ErrBrokerUnreachable, topic)
	}
	if errors.Is(err, txmq.ErrRefused) {
		if _, other := brokersOf(ctx, b, selfTestTopic); other != nil {
			return fmt.Errorf("%w: no broker is registered at name server %s",
				txmq.ErrBrokerUnreachable, strings.Join(b.NameServers, ", "))
		}
	}
	return err
}

// makeTopic makes the topic on those of the brokers that do not have it, and
// waits a moment until the name server knows. What exists is left as it is.
func makeTopic(ctx context.Context, b txmq.Broker, topic string, brokers []remoting.BrokerAddr) error {
	missing := func() []remoting.BrokerAddr {
		have := map[string]bool{}
		found, err := brokersOf(ctx, b, topic)
		if err == nil {
			for _, f := range found {
				have[f.Name] = true
			}
		}
		var rest []remoting.BrokerAddr
		for _, want := range brokers {
			if !have[want.Name] {
				rest = append(rest, want)
			}
		}
		return rest
	}
	for _, at := range missing() {
		if err := remoting.KeysOf(b).CreateTopic(ctx, at.Addr, topic, 1, 6); err != nil {
			return typed(err)
		}
	}
	ctx, known := context.WithTimeout(ctx, askTimeout)
	defer known()
	return loop.Loop{Interval: 20 * time.Millisecond, Step: func(context.Context) (bool, error) {
		if len(missing()) == 0 {
			known()
		}
		return false, nil
	}}.Run(ctx)
}

// mastersOf asks one name server after the other for the masters of all
// brokers. None at all wraps txmq.ErrBrokerUnreachable.
func mastersOf(ctx context.Context, b txmq.Broker) ([]remoting.BrokerAddr, error) {
	var errs []error
	for _, ns := range b.NameServers {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		masters, err := remoting.KeysOf(b).Masters(ctx, ns)
		cancel()
		if err == nil && len(masters) > 0 {
			return masters, nil
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: name server %s: %w", txmq.ErrBrokerUnreachable, strings.Join(b.NameServers, ", "), err)
	}
	return nil, fmt.Errorf("%w: no broker is registered at name server %s", txmq.ErrBrokerUnreachable, strings.Join(b.NameServers, ", "))
}

// request makes one signed call, of at most askTimeout. An answer that is not
// success is a *CodeError; no answer wraps txmq.ErrBrokerUnreachable.
func request(ctx context.Context, b txmq.Broker, addr string, req remoting.Frame) (remoting.Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := remoting.KeysOf(b).Call(ctx, addr, req)
	return res, typed(err)
}
