package producer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/txmq/txmq"
)

func (s *send) halfSent(ctx context.Context) {
	if s.p.cfg.Observe == nil {
		return // the event would be made for nobody
	}
	s.emit(ctx, txmq.HalfSent{Topic: s.m.Topic, EventID: s.m.EventID, Attempt: s.attempt.ID, MsgID: s.msgID})
}

func (s *send) endLost(ctx context.Context, err error) {
	s.emit(ctx, txmq.EndTransactionLost{Topic: s.m.Topic, EventID: s.m.EventID, Attempt: s.attempt.ID, Err: err})
	s.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "end-transaction was not sent, the broker will check back",
		append(s.attrs(), slog.String("verdict", s.known.String()))...)
}

// ended also runs when fn panics or ends the goroutine.
func (s *send) ended(ctx context.Context) {
	if s.p.cfg.Observe == nil {
		return
	}
	s.emit(ctx, txmq.SendEnded{
		Topic: s.m.Topic, EventID: s.m.EventID, Attempt: s.attempt.ID,
		Verdict: s.known, Took: s.p.now().Sub(s.began), Err: s.err,
	})
}

// emit survives an observer's panic: after the commit it would look like a
// failure to the caller.
func (s *send) emit(ctx context.Context, e txmq.Event) {
	defer func() {
		if cause := recover(); cause != nil {
			s.p.cfg.Logger.LogAttrs(ctx, slog.LevelError, "observer panicked",
				append(s.attrs(), slog.String("panic", fmt.Sprint(cause)))...)
		}
	}()
	s.p.cfg.Observe.Emit(ctx, e)
}

func (s *send) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("event_id", s.m.EventID), slog.String("attempt", s.attempt.ID), slog.String("topic", s.m.Topic),
	}
}
