package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/arrival"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// run is one delivery on its way.
type run struct {
	c       *Consumer
	h       Handler
	db      *database // of the handler
	m       *primitive.MessageExt
	arrival model.Arrival
	claims  bool // the record is claimed under a lease before the handler runs
	claimed model.Claimed
	limit   limit
	beat    *beat // what renews the lease, where one is held
	d       *Delivery
}

func (c *Consumer) newRun(h Handler, m *primitive.MessageExt) *run {
	db := c.bases[h.Store]
	return &run{c: c, h: h, db: db, m: m, claims: h.Do.mode.claims() || db.runs.cautious(m)}
}

// ending is what the broker is told, and what is reported.
type ending struct {
	result  rocketmq.Result
	outcome txmq.Outcome
	ran     bool // the handler was called
	err     error
}

func ack(o txmq.Outcome) ending {
	return ending{result: rocketmq.Result{Kind: rocketmq.Ack}, outcome: o}
}

func later(o txmq.Outcome, d time.Duration, err error) ending {
	return ending{result: rocketmq.Result{Kind: rocketmq.Retry, Delay: d}, outcome: o, err: err}
}

func deadLetter(err error) ending {
	return ending{result: rocketmq.Result{Kind: rocketmq.DeadLetter}, outcome: txmq.OutcomeDead, err: err}
}

// limit ends a delivery's context after a time that is set anew for each part
// of the way: what is waited for before the handler is not the handler's.
type limit struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	cause  error // the timer's, to be set while it is stopped
	shown  context.CancelFunc
}

func newLimit(parent context.Context) (context.Context, limit) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, limit{cancel: cancel}
}

func (l *limit) set(d time.Duration, cause error) {
	switch {
	case l.timer == nil:
		l.cause = cause
		l.timer = time.AfterFunc(d, func() { l.cancel(l.cause) })
	case l.timer.Stop():
		l.cause = cause
		l.timer.Reset(d)
	default: // it has gone off, and the context ends with the cause before
	}
}

// show gives the handler a context that knows its deadline. It lives as long as
// the delivery: ended with the handler, it would tear a connection whose result
// the handler left open.
func (l *limit) show(ctx context.Context, d time.Duration) context.Context {
	ctx, l.shown = context.WithTimeoutCause(ctx, d, errDeadline)
	return ctx
}

func (l *limit) end() {
	l.timer.Stop()
	if l.shown != nil {
		l.shown()
	}
	l.cancel(nil)
}

// soon is the delay of a delivery that is tried again for a passing reason.
const soon = time.Second

// deliver is the whole way of a delivery, outside in: a net for what panics,
// name, key lock, deadline, mode.
func (r *run) deliver(stop context.Context) (end ending) {
	defer func() {
		if v := recover(); v != nil { // the handler's own panics are caught where it is called
			end = later(txmq.OutcomeRetry, soon, panicked(v, debug.Stack()))
		}
	}()
	if err := fault.Point(fault.ConsumeReceived); err != nil {
		return later(txmq.OutcomeRetry, soon, err)
	}
	if err := r.name(); err != nil {
		return r.nameless(stop, err)
	}
	var ctx context.Context
	ctx, r.limit = newLimit(stop)
	defer r.limit.end()
	r.limit.set(r.c.cfg.Deadline, errNotBegun)
	release, err := r.c.keys.take(ctx, eventKey{r.arrival.Consumer, r.arrival.EventID}, 2*r.c.cfg.Deadline+grace)
	if err != nil {
		return later(txmq.OutcomeInProgress, soon, err)
	}
	defer release()
	if r.claims {
		return r.tracked(ctx, stop)
	}
	return r.atomic(ctx, stop)
}

// name fills in the arrival. An error means that the message can't have a
// record under its event ID.
func (r *run) name() (err error) {
	r.arrival, err = arrival.Of(r.m, r.h.Name, r.h.EventID)
	return err
}

func (r *run) nameless(ctx context.Context, err error) ending {
	if r.c.cfg.MissingID == MissingRetry {
		return later(txmq.OutcomeRetry, r.c.cfg.Backoff.after(1+int(r.m.ReconsumeTimes)), err)
	}
	return r.bury(ctx, arrival.MissingID, err)
}

// bury gives a DEAD row to a message that can't have a record under its own
// event ID, and sends it to the dead-letter queue.
func (r *run) bury(ctx context.Context, reason string, why error) ending {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	f := r.failure(why)
	f.EventID, f.RetryCnt = arrival.Place(reason, r.m), 0
	f.Err = fmt.Errorf("%s: %w", reason, why)
	if err := r.h.Store.Bury(ctx, f); err != nil {
		return later(txmq.OutcomeRetry, soon, errors.Join(why, err))
	}
	return deadLetter(why)
}

// failure is what a DEAD or FAIL row keeps of this delivery.
func (r *run) failure(why error) model.Failure {
	f := model.Failure{Arrival: r.arrival, Version: r.claimed.Version, RetryCnt: r.claimed.RetryCnt, Err: why, Dead: true, Keep: r.claimed.Redriven}
	if !r.c.cfg.OmitBody {
		f.Body, f.Properties = r.m.Body, r.m.GetProperties()
	}
	return f
}

// unclaimed is the end of a delivery whose record says not to run.
func (r *run) unclaimed(ctx context.Context, err error) ending {
	switch {
	case errors.Is(err, txmq.ErrPayloadMismatch):
		r.c.cfg.Observe.Emit(ctx, txmq.PayloadConflict{Consumer: r.h.Name, EventID: r.arrival.EventID, MsgID: r.m.MsgId})
		return r.bury(ctx, arrival.PayloadMismatch, err) // it names the event ID
	case err != nil:
		if r.claims {
			r.unhold(ctx, err)
		}
		return later(txmq.OutcomeRetry, soon, err)
	}
	switch r.claimed.Decision {
	case model.Duplicate:
		return ack(txmq.OutcomeDuplicate)
	case model.Buried:
		return ack(txmq.OutcomeDead)
	default:
		return later(txmq.OutcomeInProgress, max(r.claimed.Rest, soon), nil)
	}
}

// call runs the handler, and returns when that has. tx is nil in External mode.
func (r *run) call(ctx context.Context, tx *model.Tx) error {
	d := r.delivery()
	r.d = d
	deadline := r.c.cfg.Deadline
	r.limit.set(deadline, errDeadline) // ends the transaction too
	r.db.beats.from(r.beat)
	ctx = r.limit.show(ctx, deadline)
	var handle *gorm.DB
	if tx != nil {
		handle = tx.DBWithContext(ctx)
	}
	err := handling.Call(&r.c.crew, func() error { return r.h.Do.fn(ctx, handle, d) }, errGone, panicked)
	if ended := context.Cause(ctx); ended != nil && err == nil {
		return ended // a handler that took no notice of its context's end has not succeeded
	}
	if tx == nil {
		return err
	}
	return r.judge(tx.Err(), err)
}

func (r *run) delivery() *Delivery {
	m := r.m
	d := &Delivery{
		EventID: r.arrival.EventID, Attempt: r.claimed.RetryCnt + 1, Version: r.version(),
		Topic: m.Topic, Tag: m.GetTags(), Keys: m.GetKeys(), Body: m.Body, Message: m,
	}
	if ms, err := strconv.ParseInt(m.GetProperty(txmq.PropertyBorn), 10, 64); err == nil {
		d.Born = time.UnixMilli(ms)
	}
	return d
}

// version is that of the record while it is this run's.
func (r *run) version() int64 {
	if r.claims {
		return r.claimed.Version
	}
	return r.claimed.Version + 1 // Apply's claim keeps what it saw
}

func (r *run) report(ctx context.Context, end ending, took time.Duration) {
	attempt := 0
	if end.ran {
		attempt = r.claimed.RetryCnt + 1
	}
	if r.c.cfg.Observe != nil { // else the event is made for nobody
		r.c.cfg.Observe.Emit(ctx, txmq.Delivered{
			Consumer: r.h.Name, EventID: r.arrival.EventID, MsgID: r.m.MsgId, Topic: r.m.Topic,
			Outcome: end.outcome, Attempt: attempt, TookOver: r.claimed.TookOver, Took: took, Err: end.err,
		})
	}
	attrs := []slog.Attr{
		slog.String("consumer", r.h.Name), slog.String("event_id", r.arrival.EventID), slog.String("msg_id", r.m.MsgId),
		slog.String("outcome", string(end.outcome)), slog.Int("attempt", attempt), slog.Duration("took", took),
	}
	if end.err == nil {
		r.c.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "delivery ended", attrs...)
		return
	}
	var panicked *PanicError
	if errors.As(end.err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	r.c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "delivery failed", append(attrs, slog.Any("error", end.err))...)
}
