package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// Sending is one message under way, in any number of tries. With a sharding key
// all of them go to one queue; without, each goes to another broker than the
// one before, if there is one. Not for concurrent use.
type Sending struct {
	s     *Sender
	fresh func() *primitive.Message // one for each try (Q15)
	way   trail
}

// Try sends the message once and returns when the broker has stored it durably.
// It takes at most SendTimeout and 5 s for the route, or until ctx is done; the
// client is not told of ctx (Q10, Q11), so a request that is under way then goes
// on, and Close waits for it.
//
// Errors wrap txmq.ErrNotDurable, txmq.ErrBrokerUnreachable, txmq.ErrRefused
// (with the *CodeError), txmq.ErrClosed, or are ctx's. Unsent tells which of
// them rule out that the message is stored.
func (g *Sending) Try(ctx context.Context) (Sent, error) {
	if err := ctx.Err(); err != nil {
		return Sent{}, unsent{err}
	}
	msg := g.fresh()
	bound := time.Duration(1+g.s.cfg.Retries)*g.s.cfg.SendTimeout + routeAllowance
	patience := time.NewTimer(bound)
	defer patience.Stop()
	select {
	case out := <-g.dispatch(msg):
		return g.outcome(ctx, msg.Topic, out)
	case <-ctx.Done():
		return Sent{}, ctx.Err()
	case <-patience.C:
		return Sent{}, fmt.Errorf("%w: message was not answered within %v", txmq.ErrBrokerUnreachable, bound)
	}
}

// End is called once, after the last try.
func (g *Sending) End() { g.s.life.end() }

type sendOutcome struct {
	result *primitive.SendResult
	err    error
}

// dispatch lets the client send, on a goroutine that Close waits for.
func (g *Sending) dispatch(msg *primitive.Message) <-chan sendOutcome {
	s := g.s
	done := make(chan sendOutcome, 1)
	s.route.trails.Store(msg, &g.way)
	s.life.also()
	var wg sync.WaitGroup // for its Go; life does the waiting
	wg.Go(func() {
		defer s.life.end()
		defer s.route.trails.Delete(msg)
		var out sendOutcome
		defer func() {
			if cause := recover(); cause != nil {
				out.err = errors.New("client panicked")
				s.log.LogAttrs(context.Background(), slog.LevelError, "rocketmq client panicked in a send",
					slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			}
			done <- out
		}()
		out.result, out.err = s.client.SendSync(context.Background(), msg)
	})
	return done
}

func (g *Sending) outcome(ctx context.Context, topic string, out sendOutcome) (Sent, error) {
	err := classify(out.err)
	if errors.Is(err, errNoRoute) {
		return Sent{}, unsent{g.noRoute(ctx, topic)}
	}
	if err != nil {
		if q := g.way.queue(); q != nil && !errors.Is(err, txmq.ErrRefused) {
			err = fmt.Errorf("%w (broker %q, queue %d)", err, q.BrokerName, q.QueueId)
		}
		return Sent{}, err
	}
	h := halfOf(out.result)
	return Sent{
		MsgID: h.MsgID, OffsetMsgID: h.OffsetMsgID, BrokerName: h.BrokerName,
		QueueID: h.QueueID, QueueOffset: h.QueueOffset,
	}, durable(out.result, txmq.ErrNotDurable)
}

// noRoute says why nothing was sent: a queue was chosen whose broker has no
// address any more, or there was none to choose from.
func (g *Sending) noRoute(ctx context.Context, topic string) error {
	if q := g.way.queue(); q != nil {
		return fmt.Errorf("%w: broker %q, which holds queue %d of topic %q, is not registered at the name server",
			txmq.ErrBrokerUnreachable, q.BrokerName, q.QueueId, topic)
	}
	return noRoute(context.WithoutCancel(ctx), g.s.cfg.Broker, topic)
}
