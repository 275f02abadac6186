package producer

import (
	"context"
	"errors"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/model"
)

// Resolve settles an error of SendInTransaction that Is
// txmq.ErrOutcomeUnknown: Commit, or Rollback, and then that call can't commit
// any more and may be repeated. While the database is away, or still has the
// transaction open, it is Unknown with an error; call again. The broker needs no
// Resolve, it checks back. Works before Start and after Close too; any process
// with the same database and the error's event ID, topic and attempt can do it.
func (p *Producer) Resolve(ctx context.Context, err error) (txmq.Verdict, error) {
	var lost *txmq.OutcomeUnknownError
	if !errors.As(err, &lost) {
		bad := &txmq.FieldError{Field: "producer.Resolve err", Want: "an error that Is txmq.ErrOutcomeUnknown"}
		if err != nil {
			bad.Value = err
		}
		return txmq.Unknown, &txmq.OpError{Op: "resolve", Err: bad}
	}
	return checker.Resolve(ctx, p.cfg.Store, model.Attempt{
		ID: lost.Attempt, Topic: lost.Topic, EventID: lost.EventID, Group: p.cfg.Group,
	})
}
