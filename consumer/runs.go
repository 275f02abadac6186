package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/handling"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/model"
)

const (
	// seeEvery is how often a run says that it lives, and looks at the others.
	seeEvery = 10 * time.Second
	// deadAfter is when a run that says nothing is taken for dead: three times
	// in a row. It decides only how careful this process is.
	deadAfter = 3 * seeEvery
	// seeWithin bounds one such look.
	seeWithin = 5 * time.Second
	// deadKept is how long a dead run makes its successors careful.
	deadKept = time.Hour
	// clockMargin is what the broker's clock may be ahead of the database's.
	clockMargin = time.Minute
)

// life is what is known of another run of the group.
type life uint8

const (
	lives  life = iota
	unsure      // it was open when this run began, and was not seen since
	dead        // it has been silent for longer than deadAfter
)

// runs is protocol K. An Atomic handler leaves no trace of a crash, so a message
// that kills its process would come again without end. Each run of a consumer
// has a row in t_run; one without its end may have died, and then the deliveries
// that may have been under way in it are claimed first, which counts them.
type runs struct {
	store     *model.Store
	group, id string
	log       *slog.Logger

	// horizon is the last store timestamp (the broker's clock, in ms) that a
	// message under way in a dead run can have. 0: no run has died.
	horizon atomic.Int64

	others map[string]life
	begun  time.Time // when others was first filled
}

func newRuns(cfg Config, store *model.Store, id string) *runs {
	return &runs{store: store, group: cfg.Group, id: id, log: cfg.Logger}
}

// cautious tells whether the message may have been under way in a run that died,
// or is a copy that was sent back since.
func (r *runs) cautious(m *primitive.MessageExt) bool {
	horizon := r.horizon.Load()
	return horizon != 0 && (m.ReconsumeTimes > 0 || m.StoreTimestamp <= horizon)
}

// begin notes this run, and looks whether there are others without their end.
func (r *runs) begin(ctx context.Context) error {
	if err := r.store.BeginRun(ctx, r.id, r.group); err != nil {
		return err
	}
	return r.look(ctx)
}

// run sees to the row until ctx ends. before is called when caution begins.
func (r *runs) run(ctx context.Context, before func(context.Context) error) error {
	return loop.Loop{Interval: seeEvery, Step: func(ctx context.Context) (bool, error) {
		return false, r.see(ctx, before)
	}, OnError: func(err error) time.Duration {
		r.log.LogAttrs(ctx, slog.LevelWarn, "run of the consumer not renewed", slog.String("group", r.group), slog.Any("error", err))
		return seeEvery
	}}.Run(ctx)
}

func (r *runs) see(ctx context.Context, before func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	err := errors.Join(r.store.SeeRun(ctx, r.id), r.look(ctx))
	if r.horizon.Load() != 0 {
		err = errors.Join(err, before(ctx))
	}
	return err
}

// end notes a clean stop. Where two stores are of one database, the other has
// done so already.
func (r *runs) end(ctx context.Context) error {
	ctx, cancel := handling.Settle(ctx)
	defer cancel()
	if err := r.store.EndRun(ctx, r.id); !errors.Is(err, txmq.ErrNotFound) {
		return err
	}
	return nil
}

func (r *runs) look(ctx context.Context) error {
	began := time.Now()
	now, err := r.store.Now(ctx)
	if err != nil {
		return err
	}
	list, err := r.store.OpenRuns(ctx, r.group, r.id, deadKept)
	if err != nil {
		return err
	}
	since := time.Duration(0)
	if r.others == nil {
		r.begun = time.Now()
	} else {
		since = max(began.Sub(r.begun), 1)
	}
	before := r.horizon.Load()
	r.note(list, now, since)
	if after := r.horizon.Load(); (before == 0) != (after == 0) {
		r.log.LogAttrs(ctx, slog.LevelInfo, "claiming first what a run that died may have had under way",
			slog.String("group", r.group), slog.Bool("begins", after != 0))
	}
	return nil
}

// note takes in the group's other runs without their end. now is the database's
// clock; since is how long ago the first look was, at least, and 0 at the first.
func (r *runs) note(list []model.OpenRun, now time.Time, since time.Duration) {
	others := make(map[string]life, len(list))
	caution, raise := false, false
	for _, o := range list {
		known := r.others[o.ID] // one that began after this run lives
		if since == 0 {
			known = unsure
		}
		next := known
		switch {
		case o.Silent > deadAfter:
			next = dead
		case o.Silent < since:
			next = lives
		}
		others[o.ID] = next
		caution = caution || next != lives
		raise = raise || since == 0 || next == dead && known != dead
	}
	r.others = others
	switch {
	case !caution:
		r.horizon.Store(0)
	case raise:
		r.horizon.Store(now.Add(clockMargin).UnixMilli())
	}
}
