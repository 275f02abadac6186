package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

// permit asks brokers with ACL on whether they would let a component do its
// work. The client does not tell: a consumer or a check-back listener that no
// broker lets in starts without an error and then gets nothing, for ever. None
// of the requests changes anything at the broker.
type permit struct {
	broker txmq.Broker
	log    *slog.Logger
	silent map[string]bool // addresses that did not answer
}

func newPermit(b txmq.Broker, log *slog.Logger) *permit {
	return &permit{broker: b, log: log, silent: map[string]bool{}}
}

// ask is an error if a broker refuses one of the requests for want of a good
// signature or a permission, and none that answers takes them all; it wraps
// txmq.ErrRefused and has the broker's words. If another takes them, it is
// logged. What else goes wrong is no matter here.
func (p *permit) ask(ctx context.Context, brokers []remoting.BrokerAddr, what string, reqs ...remoting.Frame) error {
	var refusals []error
	admitted := false
	for _, at := range brokers {
		err := p.refusal(ctx, at, reqs)
		if err != nil {
			refusals = append(refusals, fmt.Errorf("broker %s does not let %s: %w", at.Name, what, err))
		}
		admitted = admitted || err == nil && !p.silent[at.Addr]
	}
	if len(refusals) > 0 && !admitted {
		return refusals[0]
	}
	for _, err := range refusals {
		p.log.LogAttrs(ctx, slog.LevelError, "broker refuses access, another does not", slog.Any("error", err))
	}
	return nil
}

// refusal is the broker's first. One that did not answer is not asked again.
func (p *permit) refusal(ctx context.Context, at remoting.BrokerAddr, reqs []remoting.Frame) error {
	for _, req := range reqs {
		if p.silent[at.Addr] {
			return nil
		}
		_, err := request(ctx, p.broker, at.Addr, req)
		var code *CodeError
		switch {
		case errors.As(err, &code) && code.noPermission():
			return code
		case err != nil && code == nil:
			p.silent[at.Addr] = true
		}
	}
	return nil
}

// noPermission: 5.x has a code for it, 4.x only the name of an exception.
func (e *CodeError) noPermission() bool {
	return e.Code == remoting.ResNoPermission || e.isACL()
}

// isACL knows 4.x's refusals by ACL.
func (e *CodeError) isACL() bool {
	return e.Code == remoting.ResSystemError && strings.Contains(e.Remark, "AclException")
}

// toConsume are requests that need what consuming needs: a good signature, and
// the permission to subscribe with the group (the list of its members) and to
// the topic (a search for a key that nobody has, in no span of time).
func toConsume(group, topic string) []remoting.Frame {
	return []remoting.Frame{
		remoting.Request(remoting.GetConsumerListByGroup, map[string]string{"consumerGroup": group}, nil),
		remoting.Request(remoting.QueryMessage, map[string]string{
			"topic": topic, "key": "TXMQ_NO_SUCH_KEY", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "0",
		}, nil),
	}
}

// toBeAsked is a request that needs what a producer group's heart-beat needs, a
// good signature: the sign-off of a client that never signed on.
func toBeAsked(group string) remoting.Frame {
	return remoting.Request(remoting.UnregisterClient,
		map[string]string{"clientID": instanceName(group), "producerGroup": group}, nil)
}
