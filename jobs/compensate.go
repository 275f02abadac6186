package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/internal/rocketmq"
	"github.com/txmq/txmq/model"
)

// compensate has FAIL rows run again that nobody seems to redeliver, and those
// that a person retried: by the handler's Compensator, else by a copy of the
// message to the handler's group.
func compensate(c Config, link func() broker) job {
	who := owner()
	return job{
		name: "compensate", every: c.Compensate.Every, timeout: c.Compensate.Timeout,
		run: func(ctx context.Context) (Result, error) {
			d := newRedrive(c, link(), who)
			defer d.broker.Close()
			return d.all(ctx)
		},
	}
}

// redrive is one run of compensate.
type redrive struct {
	Config
	broker broker
	owner  string // of the rows that a Compensator works on
	byHand bool   // nothing is made DEAD

	down   map[string]int // by broker: tries in a row without an answer
	putOff map[string]int // why rows had to be put off untried: how many
	errs   []error
	more   int // errors beyond those
}

const (
	// tooMany tries in a row without an answer: that broker is down, for this run.
	tooMany = 3
	// told is how many of a run's errors its own error tells.
	told = 5
)

func newRedrive(c Config, b broker, owner string) *redrive {
	return &redrive{Config: c, broker: b, owner: owner, down: map[string]int{}, putOff: map[string]int{}}
}

// fate is what became of a row.
type fate struct {
	way  txmq.RedriveWay // empty: somebody else was quicker
	dead bool
	err  error
}

// all goes on until a batch is not full, or Max is met. A row it has dealt with
// is due no more, so each batch is another one.
func (d *redrive) all(ctx context.Context) (res Result, err error) {
	cfg := d.Compensate
	for seen := 0; seen+cfg.Batch <= cfg.Max; seen += cfg.Batch {
		rows, err := d.Store.Due(ctx, cfg.Stale, cfg.Batch)
		if err != nil {
			return res, d.report(err)
		}
		progress := false
		for _, r := range rows {
			ran, moved, err := d.row(ctx, r)
			if ran {
				res.Done++
			}
			if err != nil {
				return res, d.report(err)
			}
			progress = progress || moved
		}
		if len(rows) < cfg.Batch {
			return res, d.report(nil)
		}
		if !progress {
			break // others hold them all
		}
	}
	res.More = true
	return res, d.report(nil)
}

// row deals with one. ran: its Compensator has finished it, or a copy of its message is on
// the way; moved: it is due no more by this run's doing. An error ends the run: the
// database's, or ctx's.
func (d *redrive) row(ctx context.Context, r model.ConsumeRecord) (ran, moved bool, err error) {
	if ctx.Err() != nil {
		return false, false, context.Cause(ctx)
	}
	if why := d.stuck(r); why != "" {
		d.putOff[why]++
		moved, err = d.Store.Postpone(ctx, r, d.Compensate.Stale)
		return false, moved, err
	}
	moved, err = d.Store.Redrive(ctx, r, d.Compensate.Stale, d.pause(r))
	if err != nil || !moved {
		return false, false, err
	}
	f, err := d.take(ctx, r)
	return err == nil && f.way != "" && f.err == nil, true, err
}

// stuck says why the row can't be tried by this run, if so. Such rows are put
// off, so that they are not in the way of others.
func (d *redrive) stuck(r model.ConsumeRecord) string {
	if err := d.homeless(r); err != nil {
		return err.Error()
	}
	if name := r.Position.BrokerName; d.Compensators[r.Consumer] == nil && d.down[name] >= tooMany {
		return fmt.Sprintf("broker %q does not answer", name)
	}
	return ""
}

// errNowhere is of rows that were adopted from another's table.
var errNowhere = errors.New("the record does not say where its message lies: have it published again, or resolve the record")

// homeless says what is missing for the row to have a way.
func (c Config) homeless(r model.ConsumeRecord) error {
	if c.Compensators[r.Consumer] != nil {
		return nil
	}
	if r.Position.Topic == "" {
		return errNowhere
	}
	if !c.hasBroker() {
		return &txmq.FieldError{
			Field: "jobs.Config.Broker", Want: fmt.Sprintf("the broker, for handler %q has no Compensator", r.Consumer),
		}
	}
	if _, ok := c.groupOf(r); !ok {
		return &txmq.FieldError{
			Field: fmt.Sprintf("jobs.Config.Groups[%q]", r.Consumer), Want: "the consumer group, which the handler's name does not tell",
		}
	}
	return nil
}

// groupOf is the consumer group of the row's handler.
func (c Config) groupOf(r model.ConsumeRecord) (string, bool) {
	if group := c.Groups[r.Consumer]; group != "" {
		return group, true
	}
	for _, l := range c.DeadLetters {
		for _, h := range l.Handlers {
			if h.Name == r.Consumer {
				return l.Group, true
			}
		}
	}
	group, topic, _ := cutLast(r.Consumer, ":")
	return group, topic == r.Position.Topic && rocketmq.CheckGroup(group, "group") == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// pause is for how long the row is left alone: as long again as it has been idle.
func (c Config) pause(r model.ConsumeRecord) time.Duration {
	return min(max(r.Idle, c.Compensate.Stale), c.Compensate.Longest)
}

// take runs a row that Redrive has given to this run, and tells what became of it.
func (d *redrive) take(ctx context.Context, r model.ConsumeRecord) (fate, error) {
	var f fate
	var err error
	if fn := d.Compensators[r.Consumer]; fn != nil {
		f, err = d.finish(ctx, r, fn)
	} else {
		f, err = d.deliver(ctx, r)
	}
	if f.way == "" {
		return f, err
	}
	d.Observe.Emit(ctx, txmq.Redriven{Consumer: r.Consumer, EventID: r.EventID, Way: f.way, Dead: f.dead, Err: f.err})
	attrs := []slog.Attr{
		slog.String("consumer", r.Consumer), slog.String("event_id", r.EventID), slog.String("way", string(f.way)),
	}
	if f.err == nil {
		d.Logger.LogAttrs(ctx, slog.LevelDebug, "record redriven", attrs...)
	} else {
		d.Logger.LogAttrs(ctx, slog.LevelWarn, "record not redriven", append(attrs, slog.Bool("dead", f.dead), slog.Any("error", f.err))...)
	}
	return f, err
}

// deliver has the broker give the row's message to its group again.
func (d *redrive) deliver(ctx context.Context, r model.ConsumeRecord) (fate, error) {
	group, _ := d.groupOf(r)
	at := r.Position
	err := d.broker.SendBack(ctx, rocketmq.SendBackRequest{
		Group: group, Topic: at.Topic, OffsetMsgID: at.OffsetMsgID, BrokerName: at.BrokerName, MsgID: at.MsgID,
	})
	if unsendable(err) {
		d.down[at.BrokerName] = 0
		return d.republish(ctx, r, group, unplaced(err, at))
	}
	return d.weigh(ctx, r, at.BrokerName, fate{way: txmq.RedriveSendBack, err: err})
}

// unsendable: the broker no longer has the message, or the row does not say
// where it lies; no other try will do better.
func unsendable(err error) bool {
	var field *txmq.FieldError
	return errors.Is(err, rocketmq.ErrGone) || errors.As(err, &field)
}

// copiesKept is how long copies of a message may lie in a group's retry topic,
// made until the message itself was deleted: twice the broker's default of 72 h,
// and a day. The row is not DEAD before: a copy that finds DEAD is acknowledged.
const copiesKept = 7 * 24 * time.Hour

// unplaced says of what the row tells that no broker can be asked for it.
func unplaced(err error, at model.Position) error {
	if errors.Is(err, rocketmq.ErrGone) {
		return err
	}
	return fmt.Errorf("the record does not say where its message lies: topic %q, offset message ID %q", at.Topic, at.OffsetMsgID)
}

// republish gives the group the message as the row keeps it. A row that keeps
// none is DEAD.
func (d *redrive) republish(ctx context.Context, r model.ConsumeRecord, group string, gone error) (fate, error) {
	p, err := d.Store.Payload(ctx, r)
	switch {
	case errors.Is(err, txmq.ErrNotFound) && r.Redriven() && r.Idle < copiesKept:
		return fate{way: txmq.RedriveSendBack, err: fmt.Errorf("%w; copies that were sent before may wait in the group's retry topic", gone)}, nil
	case errors.Is(err, txmq.ErrNotFound):
		return d.bury(ctx, r, fate{way: txmq.RedriveSendBack, err: gone})
	case err != nil:
		return fate{}, err
	}
	err = d.broker.Republish(ctx, rocketmq.RepublishRequest{
		Group: group, Topic: r.Position.Topic, Body: p.Body, Properties: p.Properties, Born: r.CreatedAt.Time,
	})
	f := fate{way: txmq.RedriveRepublish, err: err}
	if unsendable(err) {
		f.err = fmt.Errorf("the copy that the record keeps can't be sent: %s", strings.ReplaceAll(err.Error(), "RepublishRequest.", ""))
		return d.bury(ctx, r, f)
	}
	return d.weigh(ctx, r, "", f)
}

// bury makes the row DEAD: there is nothing left to deliver.
func (d *redrive) bury(ctx context.Context, r model.ConsumeRecord, f fate) (fate, error) {
	if d.byHand {
		return d.leave(ctx, r, f)
	}
	why := f.err
	if r.LastError != "" {
		why = fmt.Errorf("%w; it had failed before: %s", why, r.LastError)
	}
	err := d.Store.Fail(ctx, model.Failure{
		Arrival: r.Arrival(), Version: r.Version, RetryCnt: r.RetryCnt, Dead: true, Err: why,
	})
	if errors.Is(err, txmq.ErrLeaseLost) {
		return fate{}, nil // delivered meanwhile, from somewhere
	}
	f.dead = err == nil
	return f, err
}

// weigh keeps what the operator must know of a delivery, and puts a row off
// whose broker did not answer: not for its pause, since it may have got nothing.
func (d *redrive) weigh(ctx context.Context, r model.ConsumeRecord, broker string, f fate) (fate, error) {
	switch {
	case f.err == nil:
		d.down[broker] = 0
		return f, nil
	case !errors.Is(f.err, txmq.ErrBrokerUnreachable):
		d.note(r, f.err)
		return f, nil
	}
	d.down[broker]++
	d.note(r, f.err)
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	_, err := d.Store.Postpone(ctx, r, 0)
	return f, err
}

func (d *redrive) note(r model.ConsumeRecord, err error) {
	if len(d.errs) == told {
		d.more++
		return
	}
	d.errs = append(d.errs, fmt.Errorf("%s of %q: %w", r.EventID, r.Consumer, err))
}

// report is the run's error: err, and what was noted.
func (d *redrive) report(err error) error {
	errs := append([]error{err}, d.errs...)
	if d.more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", d.more))
	}
	for _, why := range slices.Sorted(maps.Keys(d.putOff)) {
		errs = append(errs, fmt.Errorf("%s: %d rows put off", why, d.putOff[why]))
	}
	return errors.Join(errs...)
}
