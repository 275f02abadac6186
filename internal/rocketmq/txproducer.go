package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

const (
	defaultSendTimeout  = 3 * time.Second
	defaultCheckTimeout = 2 * time.Second

	// routeAllowance is what a send may take beyond its tries: the client asks
	// the name server on its first send to a topic.
	routeAllowance = 5 * time.Second

	// endTimeout bounds the wait for the end-transaction to leave the process.
	endTimeout = 3 * time.Second

	// heartbeatAfter is when the client's first heart-beat goes out, counted
	// from its start. The next one is 30 s later.
	heartbeatAfter = time.Second
)

// TxConfig says how to send half messages and who answers check-backs.
type TxConfig struct {
	// Broker is where to send. Required.
	Broker txmq.Broker

	// Group is the producer group; the broker asks any process of it about a
	// half. Required.
	Group string

	// Topics are those whose brokers know the group within two seconds after
	// Start, though nothing was sent. Empty: all brokers.
	Topics []string

	// Retries is how often the client sends a half again that was not answered
	// in time. Each retry may store one more half of the same attempt. 0: never.
	Retries int

	// SendTimeout is for one try. Default 3s.
	SendTimeout time.Duration

	// Check answers a check-back. Required. Its ctx ends after CheckTimeout,
	// and when Close gives up waiting. A panic counts as Unknown.
	Check func(ctx context.Context, m *primitive.MessageExt) txmq.Verdict

	// CheckTimeout is after how long a check-back is answered Unknown, so that
	// the next one is not held up. Default 2s.
	CheckTimeout time.Duration

	// Logger gets what the operator should see. Default: nothing is logged.
	Logger *slog.Logger
}

func (c TxConfig) withDefaults() TxConfig {
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSendTimeout)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, defaultCheckTimeout)
	c.Topics = slices.Clone(c.Topics)
	if len(c.Topics) == 0 {
		c.Topics = []string{selfTestTopic}
	}
	return c
}

func (c TxConfig) validate() error {
	errs := []error{CheckBroker(c.Broker, "TxConfig.Broker"), CheckGroup(c.Group, "TxConfig.Group")}
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "TxConfig." + field, Value: value, Want: want})
	}
	for i, t := range c.Topics {
		errs = append(errs, checkTopic(t, fmt.Sprintf("TxConfig.Topics[%d]", i)))
	}
	if c.Retries < 0 || c.Retries > 16 {
		bad("Retries", c.Retries, "0 to 16")
	}
	errs = append(errs, checkTimeout("TxConfig.SendTimeout", c.SendTimeout))
	if c.Check == nil {
		bad("Check", nil, "a function")
	}
	errs = append(errs, checkTimeout("TxConfig.CheckTimeout", c.CheckTimeout))
	return errors.Join(errs...)
}

// TxProducer sends half messages and answers check-backs. It is safe for
// concurrent use.
type TxProducer struct {
	cfg   TxConfig
	log   *slog.Logger
	life  *life
	calls sync.Map // *primitive.Message -> *call
	route *selector
	check *checker

	client txClient    // set by Start
	down   atomic.Bool // the client is being shut down
}

// txClient is what is used of the client's transaction producer.
type txClient interface {
	Start() error
	Shutdown() error
	SendMessageInTransaction(context.Context, *primitive.Message) (*primitive.TransactionSendResult, error)
}

// NewTxProducer checks the configuration and starts nothing.
func NewTxProducer(cfg TxConfig) (*TxProducer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	l := newLife()
	log := useLogger(cfg.Logger)
	return &TxProducer{
		cfg: cfg, log: log, life: l, route: newSelector(),
		check: newChecker(l, cfg.Check, cfg.CheckTimeout, log),
	}, nil
}

// Start connects, under an instance name of its own, and makes the group known
// to the topics' brokers. With the name servers away it is an error that wraps
// txmq.ErrBrokerUnreachable, after at most 3 s each; a signature that no broker
// takes (ACL) is one that wraps txmq.ErrRefused. A topic that does not exist is
// not an error: it may be made later. After an error Start may be called again;
// after success it is an error.
func (p *TxProducer) Start(ctx context.Context) error {
	return p.life.start(func() error {
		if s, ok := standIn(ctx); ok {
			p.client = &txStandIn{listener: (*listener)(p), send: s.Send}
			return nil
		}
		brokers, missing, err := p.lookUp(ctx)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("producer group %s sign on", p.cfg.Group)
		if err := newPermit(p.cfg.Broker, p.log).ask(ctx, brokers, what, toBeAsked(p.cfg.Group)); err != nil {
			return err
		}
		client, err := producer.NewTransactionProducer((*listener)(p), p.options()...)
		if err != nil {
			return fmt.Errorf("rocketmq: transaction producer: %w", err)
		}
		began := time.Now()
		if err := client.Start(); err != nil { // and no Shutdown after this (Q18)
			return fmt.Errorf("rocketmq: start transaction producer: %w", err)
		}
		p.client = client
		p.warmUp(ctx, missing)
		if took := time.Since(began); took > heartbeatAfter {
			p.log.LogAttrs(ctx, slog.LevelWarn, "brokers learn of the group with the next heart-beat only",
				slog.String("group", p.cfg.Group), slog.Duration("warm_up_took", took))
		}
		return nil
	})
}

func (p *TxProducer) options() []producer.Option {
	return append(clientOptions(p.cfg.Broker, p.cfg.Group, p.route),
		producer.WithRetry(p.cfg.Retries),
		producer.WithSendMsgTimeout(p.cfg.SendTimeout),
		producer.WithInterceptor(p.observe))
}

// clientOptions are the same for each kind of producer.
func clientOptions(b txmq.Broker, group string, route producer.QueueSelector) []producer.Option {
	opts := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(slices.Clone(b.NameServers))), // Q48
		producer.WithGroupName(group),
		producer.WithInstanceName(instanceName(group)),
		producer.WithQueueSelector(route),
	}
	if b.AccessKey != "" {
		opts = append(opts, producer.WithCredentials(primitive.Credentials{
			AccessKey: b.AccessKey, SecretKey: string(b.SecretKey),
		}))
	}
	return opts
}

// lookUp finds the topics' brokers, those of all topics if a topic is missing.
// It asks before the client is started, because the client hides whether the
// name server is away.
func (p *TxProducer) lookUp(ctx context.Context) (brokers []remoting.BrokerAddr, missing []string, err error) {
	for _, t := range p.cfg.Topics {
		switch found, err := brokersOf(ctx, p.cfg.Broker, t); {
		case errors.Is(err, txmq.ErrRefused):
			missing = append(missing, t)
		case err != nil:
			return nil, nil, err
		default:
			brokers = append(brokers, found...)
		}
	}
	if len(missing) > 0 {
		found, err := brokersOf(ctx, p.cfg.Broker, selfTestTopic)
		if err == nil { // else no broker has registered yet
			brokers = append(brokers, found...)
		}
	}
	slices.SortFunc(brokers, func(a, b remoting.BrokerAddr) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(brokers), missing, nil
}

// warmUp loads the topics' routes before the first heart-beat, so that it goes
// to their brokers and they check back with us (Q04). Nothing is sent.
func (p *TxProducer) warmUp(ctx context.Context, missing []string) {
	topics := p.cfg.Topics
	if len(missing) > 0 {
		p.log.LogAttrs(ctx, slog.LevelWarn, "topics do not exist yet, so all brokers may check back with the group",
			slog.String("group", p.cfg.Group), slog.Any("topics", missing))
		topics = append(slices.Clone(topics), selfTestTopic)
	}
	for _, t := range topics {
		if slices.Contains(missing, t) {
			continue
		}
		p.route.warm(t, func(msg *primitive.Message) {
			// An error is what the missing queue leads to.
			_, _ = p.client.SendMessageInTransaction(context.WithoutCancel(ctx), msg)
		})
	}
}

// SendHalf stores a half message, calls local once it is stored durably, on the
// caller's goroutine, and tells the broker what local returned.
//
// If ctx is done it returns ctx.Err() and has sent nothing. After that ctx
// counts no more: sending takes at most SendTimeout per try and 5 s for the
// route. After an error local has not run and never will, but a half may be
// stored all the same; what its check-back is answered is the caller's affair.
//
// Errors wrap txmq.ErrHalfNotDurable, txmq.ErrBrokerUnreachable, txmq.ErrRefused
// (with the *CodeError), txmq.ErrClosed, txmq.ErrNotStarted, or are those of
// CheckMessage. When local panics, the broker is told Unknown and the panic goes
// on.
func (p *TxProducer) SendHalf(ctx context.Context, m txmq.Message, props map[string]string, local func(Half) txmq.Verdict) (HalfResult, error) {
	if err := ctx.Err(); err != nil {
		return HalfResult{}, err
	}
	if err := errors.Join(CheckMessage(m, true), checkOwn(props)); err != nil {
		return HalfResult{}, err
	}
	if err := p.life.begin(); err != nil {
		return HalfResult{}, err
	}
	defer p.life.end()

	c := p.dispatch(newMessage(m, props))
	bound := time.Duration(1+p.cfg.Retries)*p.cfg.SendTimeout + routeAllowance
	patience := time.NewTimer(bound)
	defer patience.Stop()
	select {
	case half := <-c.stored:
		return p.ranLocal(c, half, local, patience), nil
	case <-c.done:
		return p.notRun(ctx, c, m.Topic)
	case <-patience.C:
	}
	if c.abandon() {
		return HalfResult{}, fmt.Errorf("%w: half message was not answered within %v", txmq.ErrBrokerUnreachable, bound)
	}
	return p.ranLocal(c, <-c.stored, local, patience), nil
}

// dispatch lets the client send, on a goroutine that Close waits for.
func (p *TxProducer) dispatch(msg *primitive.Message) *call {
	c := newCall()
	p.calls.Store(msg, c)
	p.life.also()
	go func() { // life waits for it
		defer p.life.end()
		defer close(c.done)
		defer p.calls.Delete(msg)
		defer func() {
			if cause := recover(); cause != nil {
				c.panicked = true
				p.log.LogAttrs(context.Background(), slog.LevelError, "rocketmq client panicked in a transactional send",
					slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
			}
		}()
		c.result, c.err = p.client.SendMessageInTransaction(context.Background(), msg)
	}()
	return c
}

func (p *TxProducer) ranLocal(c *call, half Half, local func(Half) txmq.Verdict, limit *time.Timer) HalfResult {
	v := c.run(local, half, limit)
	return HalfResult{Half: half, Ran: true, Verdict: v, Ended: c.ended() && !p.down.Load()}
}

// notRun is for a client that came back without having called local.
func (p *TxProducer) notRun(ctx context.Context, c *call, topic string) (HalfResult, error) {
	switch err := classify(c.err); {
	case c.panicked:
		return HalfResult{}, fmt.Errorf("%w: client panicked", txmq.ErrBrokerUnreachable)
	case errors.Is(err, errNoRoute):
		return HalfResult{}, noRoute(context.WithoutCancel(ctx), p.cfg.Broker, topic)
	case err != nil:
		return HalfResult{}, err
	case c.result == nil:
		return HalfResult{}, durable(nil, txmq.ErrHalfNotDurable)
	default: // the client has rolled it back
		return HalfResult{Half: halfOf(c.result.SendResult), Verdict: txmq.Rollback, Ended: true},
			durable(c.result.SendResult, txmq.ErrHalfNotDurable)
	}
}

// observe catches where the half lies; the listener is not told.
func (p *TxProducer) observe(ctx context.Context, req, reply any, next primitive.Invoker) error {
	err := next(ctx, req, reply)
	if v, ok := p.calls.Load(req); ok && err == nil {
		if c, ok := v.(*call); ok {
			c.sent, _ = reply.(*primitive.SendResult)
		}
	}
	return err
}

// Close refuses new sends and answers new check-backs Unknown, waits for those
// in flight, up to ctx, and shuts the client down. Its error is ctx's, if
// something was left running. It may be called more than once.
func (p *TxProducer) Close(ctx context.Context) error {
	return p.life.close(ctx, func() error {
		left := p.life.drain(ctx)
		p.check.stop()
		p.check.settle()
		p.down.Store(true)
		shutdown(p.log, p.client.Shutdown)
		if left > 0 {
			return fmt.Errorf("rocketmq: %d sends and checks of group %s left running: %w", left, p.cfg.Group, ctx.Err())
		}
		return nil
	})
}

// shutdown survives what the client's shutdown does on a bad day (Q32).
func shutdown(log *slog.Logger, f func() error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.LogAttrs(context.Background(), slog.LevelError, "rocketmq client panicked in its shutdown",
				slog.String("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
		}
	}()
	fence()
	if err := f(); err != nil {
		log.LogAttrs(context.Background(), slog.LevelWarn, "rocketmq client's shutdown", slog.Any("error", err))
	}
}
