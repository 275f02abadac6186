package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// DeadLetter is a consumer group whose dead-letter queue is taken in.
type DeadLetter struct {
	// Group is the consumer group. Required.
	Group string

	// Handlers are the group's, as consumer.Config has them: Topic, Tags, Name,
	// EventID and Store are read, the rest is not; those of another database are
	// that one's runner's. A topic without one counts as having the name
	// "<group>:<topic>" and TXMQ_EVENT_ID, but a message that is recorded under
	// another name gets no row, unless that is known to be another group's.
	//
	// Without any, Config.Groups should name all handlers of the group: the only
	// one has the message, and of several it is none, in a row that can't be
	// retried, unless "<group>:<topic>" is one.
	Handlers []consumer.Handler

	// OmitBody keeps body and properties out of the rows, which then can't be
	// retried once the broker has deleted the dead letter.
	OmitBody bool
}

const dlqPrefix = "%DLQ%"

// withNames copies the list, and fills in what the consumer would.
func withNames(list []DeadLetter) []DeadLetter {
	list = slices.Clone(list)
	for i, l := range list {
		l.Handlers = slices.Clone(l.Handlers)
		for j, h := range l.Handlers {
			l.Handlers[j].Name = cmp.Or(h.Name, l.Group+":"+h.Topic)
			if h.EventID == nil {
				l.Handlers[j].EventID = arrival.EventID
			}
		}
		list[i] = l
	}
	return list
}

func (c Config) validateDeadLetters(check checker) error {
	var errs []error
	check(len(c.DeadLetters) == 0 || c.hasBroker(), "Broker", nil, "where the DeadLetters are")
	seen := map[string]bool{}
	for i, l := range c.DeadLetters {
		field := fmt.Sprintf("DeadLetters[%d].", i)
		errs = append(errs, rocketmq.CheckGroup(l.Group, "jobs.Config."+field+"Group"))
		check(!seen[l.Group], field+"Group", l.Group, "each group once")
		seen[l.Group] = true
		names := map[string]bool{}
		for j, h := range l.Handlers {
			at := fmt.Sprintf("%sHandlers[%d].", field, j)
			check(h.Topic != "", at+"Topic", nil, "the topic it consumes")
			check(!names[h.Name] && len(h.Name) <= txmq.MaxEventIDBytes, at+"Name", h.Name, "a name of its own, at most 255 bytes")
			names[h.Name] = true
			if _, err := arrival.ParseTags(h.Tags); err != nil {
				check(false, at+"Tags", h.Tags, err.Error())
			}
		}
	}
	return errors.Join(errs...)
}

// intake reads one dead-letter queue while Run lasts.
type intake struct {
	Config
	DeadLetter
	again time.Duration // between two looks for a queue that does not exist yet
}

// readers is the consumer group that reads the queue, one for each database:
// two services that share a broker don't eat each other's. A name that would be
// too long is told by its hash.
func (in intake) readers() string {
	name := "TXMQ_DLQ_" + in.Store.DatabaseID() + "_" + in.Group
	if rocketmq.CheckGroup(name, "group") != nil {
		sum := sha256.Sum256([]byte(in.Store.DatabaseID() + " " + in.Group))
		name = "TXMQ_DLQ_" + hex.EncodeToString(sum[:16])
	}
	return name
}

// lookAgain is the default of intake.again. The broker makes the queue with the
// first dead letter, and keeps what is in it for days.
const lookAgain = 30 * time.Second

// run reads the queue until ctx ends, as soon as there is one.
func (in intake) run(ctx context.Context) {
	c, err := rocketmq.NewPushConsumer(rocketmq.PushConfig{
		Broker: in.Broker, Group: in.readers(), Workers: 2, Logger: in.client,
		Subscriptions: []rocketmq.Subscription{{Topic: dlqPrefix + in.Group}},
		Handle:        in.handle,
	})
	if err != nil { // New has checked all that is in it
		in.Logger.LogAttrs(ctx, slog.LevelError, "dead letters are not taken in", slog.String("group", in.Group), slog.Any("error", err))
		return
	}
	starting, started := context.WithCancel(ctx)
	defer started()
	// Run returns nil, always.
	_ = loop.Loop{Interval: in.again, Step: func(ctx context.Context) (bool, error) {
		if err := c.Start(ctx); err == nil {
			started()
		} else {
			in.Logger.LogAttrs(ctx, levelOf(err), "dead letters can't be taken in yet", slog.String("group", in.Group), slog.Any("error", err))
		}
		return false, nil
	}}.Run(starting)
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(in.Drain, 0))
	defer cancel()
	if err := c.Close(end); err != nil {
		in.Logger.LogAttrs(end, slog.LevelWarn, "dead-letter intake stopped before its last message was done",
			slog.String("group", in.Group), slog.Any("error", err))
	}
}

// levelOf tells how much an operator should make of a queue that can't be read.
func levelOf(err error) slog.Level {
	switch {
	case errors.Is(err, rocketmq.ErrNoTopic):
		return slog.LevelDebug // nobody has given a message up yet
	case errors.Is(err, txmq.ErrRefused):
		return slog.LevelError // for want of a right, which does not pass by itself
	default:
		return slog.LevelWarn
	}
}

// handle acknowledges a message once it has a record.
func (in intake) handle(ctx context.Context, m *primitive.MessageExt) rocketmq.Result {
	if err := in.take(ctx, m); err != nil {
		in.Logger.LogAttrs(ctx, slog.LevelWarn, "dead letter not taken in", slog.String("group", in.Group),
			slog.String("msg_id", m.MsgId), slog.Any("error", err))
		return rocketmq.Result{Kind: rocketmq.Retry, Delay: 10 * time.Second}
	}
	return rocketmq.Result{Kind: rocketmq.Ack}
}

var (
	errDeadLetter = errors.New("found in the dead-letter queue")
	errNoTopic    = errors.New("no property says which topic the message came from")
	errNoHandler  = errors.New("the group has several handlers, and nothing says which one is the message's")
)

// Reasons in the key of a message whose topic, or whose handler, is not known.
const (
	noTopic   = "no_topic"
	noHandler = "no_handler"
)

// take gives the message its DEAD row, if it has none.
func (in intake) take(ctx context.Context, m *primitive.MessageExt) error {
	topic := in.topicOf(m)
	if topic == "" {
		h := consumer.Handler{Name: in.Group + ":" + m.Topic, EventID: arrival.EventID}
		a, _ := arrival.Of(m, h.Name, h.EventID)
		return in.bury(ctx, m, a, noTopic, errNoTopic)
	}
	m.Topic = topic // as the handler's function has always seen it
	h, given := in.handlerOf(m)
	if h.Store != nil && h.Store.DatabaseID() != in.Store.DatabaseID() {
		return nil // for that database's runner, which reads as a group of its own
	}
	if !given {
		if yes, err := in.recorded(ctx, m); err != nil || yes {
			return err
		}
	}
	a, err := arrival.Of(m, cmp.Or(h.Name, in.Group+":"+m.Topic), h.EventID)
	switch {
	case h.Name == "":
		return in.bury(ctx, m, a, noHandler, errNoHandler)
	case err != nil:
		return in.bury(ctx, m, a, arrival.MissingID, err)
	}
	rec, err := in.Store.Find(ctx, a.EventID, a.Consumer)
	switch {
	case err == nil && differs(rec.Arrival().PayloadHash, a.PayloadHash):
		return in.bury(ctx, m, a, arrival.PayloadMismatch, txmq.ErrPayloadMismatch)
	case !errors.Is(err, txmq.ErrNotFound):
		return err // nil: it has its record
	}
	if err := in.Store.Fail(ctx, in.failure(m, a, errDeadLetter)); err != nil {
		return err // also when another was quicker: the next look finds that one's
	}
	in.found(ctx, m, a, nil)
	return nil
}

// differs: a record of all zeroes does not know its hash.
func differs(recorded, seen [32]byte) bool { return recorded != seen && recorded != [32]byte{} }

// topicOf is the topic that the message was sent to. A group with one handler
// can't have had it from another.
func (in intake) topicOf(m *primitive.MessageExt) string {
	for _, property := range []string{primitive.PropertyRetryTopic, "DLQ_ORIGIN_TOPIC"} {
		if topic := m.GetProperty(property); topic != "" && topic != dlqPrefix+in.Group {
			return topic
		}
	}
	if len(in.Handlers) == 1 {
		return in.Handlers[0].Topic
	}
	return ""
}

func (in intake) failure(m *primitive.MessageExt, a model.Arrival, why error) model.Failure {
	f := model.Failure{Arrival: a, Dead: true, Err: why}
	if !in.OmitBody {
		f.Body, f.Properties = m.Body, m.GetProperties()
	}
	return f
}

// bury gives a row to a message that can't have one under its event ID. The
// consumer may have done so before it gave the message up: the key is the same.
func (in intake) bury(ctx context.Context, m *primitive.MessageExt, a model.Arrival, reason string, why error) error {
	f := in.failure(m, a, fmt.Errorf("%s: %w: %w", reason, errDeadLetter, why))
	f.EventID = arrival.Place(reason, m)
	if _, err := in.Store.Find(ctx, f.EventID, a.Consumer); !errors.Is(err, txmq.ErrNotFound) {
		return err
	}
	if err := in.Store.Bury(ctx, f); err != nil {
		return err
	}
	in.found(ctx, m, f.Arrival, why)
	return nil
}

func (in intake) found(ctx context.Context, m *primitive.MessageExt, a model.Arrival, why error) {
	in.Observe.Emit(ctx, txmq.DeadLetterFound{Consumer: a.Consumer, EventID: a.EventID, MsgID: m.MsgId, Err: why})
	in.Logger.LogAttrs(ctx, slog.LevelWarn, "dead letter without a record: it is DEAD now", slog.String("consumer", a.Consumer),
		slog.String("event_id", a.EventID), slog.String("msg_id", m.MsgId))
}
