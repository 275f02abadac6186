package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// maxStrayChecks is how many Checks that did not heed their time-out may hang
// about. With more, check-backs are answered Unknown without asking.
const maxStrayChecks = 64

// answerTime is what the client may take from a check's verdict until it is
// handed to the network, before its shutdown.
const answerTime = 50 * time.Millisecond

// listener is a TxProducer as the client sees it.
type listener TxProducer

var _ primitive.TransactionListener = (*listener)(nil)

// ExecuteLocalTransaction hands the stored half to the goroutine in SendHalf
// and waits for its verdict. If that one has given up, local will never run, so
// the half is rolled back.
func (l *listener) ExecuteLocalTransaction(msg *primitive.Message) primitive.LocalTransactionState {
	v, ok := l.calls.Load(msg)
	if !ok {
		return ClientState(txmq.Unknown)
	}
	c, ok := v.(*call)
	if !ok {
		return ClientState(txmq.Unknown)
	}
	if !c.claim() {
		return ClientState(txmq.Rollback)
	}
	c.stored <- halfOf(c.sent)
	return ClientState(<-c.verdict)
}

// CheckLocalTransaction is called for one check-back after the other (Q03).
func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return ClientState(l.check.ask(m))
}

// checker stands between the client, which dies of a panic and waits for ever,
// and the function that answers.
type checker struct {
	life  *life
	check func(context.Context, *primitive.MessageExt) txmq.Verdict
	limit time.Duration
	log   *slog.Logger

	base  context.Context // ends with the component, which no call's context does
	stop  context.CancelFunc
	slots chan struct{}

	mu   sync.Mutex
	last time.Time // of the last answer
}

func newChecker(l *life, check func(context.Context, *primitive.MessageExt) txmq.Verdict, limit time.Duration, log *slog.Logger) *checker {
	base, stop := context.WithCancel(context.Background())
	return &checker{
		life: l, check: check, limit: limit, log: log, base: base, stop: stop,
		slots: make(chan struct{}, maxStrayChecks),
	}
}

// ask is Unknown unless check returns something else in time.
func (c *checker) ask(m *primitive.MessageExt) txmq.Verdict {
	if c.life.join() != nil { // closed (Q19)
		// The client's goroutine is held until its Shutdown is over: it would
		// read a flag that this one writes.
		<-c.life.closed
		return txmq.Unknown
	}
	defer c.life.end()
	defer c.answered()
	select {
	case c.slots <- struct{}{}:
	default:
		c.log.LogAttrs(c.base, slog.LevelError, "check-back not asked: earlier checks hang",
			slog.String("msg_id", m.MsgId), slog.Int("hanging", maxStrayChecks))
		return txmq.Unknown
	}
	ctx, cancel := context.WithTimeout(c.base, c.limit)
	answer := make(chan txmq.Verdict, 1)
	c.life.also()
	var wg sync.WaitGroup // for its Go; life does the waiting
	wg.Go(func() {
		defer c.life.end()
		defer func() { <-c.slots }()
		defer cancel()
		answer <- c.guarded(ctx, m)
	})
	// The client's goroutine that waits here is the only one for all checks.
	select {
	case v := <-answer:
		return v
	case <-ctx.Done():
		select {
		case v := <-answer: // cancel comes after the answer
			return v
		default:
		}
		c.log.LogAttrs(c.base, slog.LevelWarn, "check-back answered unknown: check gave no answer in time",
			slog.String("msg_id", m.MsgId), slog.Duration("limit", c.limit))
		return txmq.Unknown
	}
}

func (c *checker) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
}

// settle gives the client a moment to send the last answer, which it does after
// ask has returned.
func (c *checker) settle() {
	c.mu.Lock()
	wait := answerTime - time.Since(c.last)
	c.mu.Unlock()
	if wait > 0 {
		<-time.After(wait)
	}
}

// guarded is Unknown when check panics or ends its goroutine.
func (c *checker) guarded(ctx context.Context, m *primitive.MessageExt) (v txmq.Verdict) {
	defer func() {
		if cause := recover(); cause != nil {
			v = txmq.Unknown
			c.log.LogAttrs(ctx, slog.LevelError, "check panicked",
				slog.String("msg_id", m.MsgId), slog.String("panic", fmt.Sprint(cause)),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	return c.check(ctx, m)
}
