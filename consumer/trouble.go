package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/txmq/txmq"
)

// kind says whose trouble an error of a run is. A handler's error may wrap any
// of txmq's sentinels (it may call a producer), so those alone say nothing.
type kind uint8

const (
	ofHandler kind = iota // what the handler returned or did: it counts
	passing               // the server broke the transaction: it costs no attempt
	moved                 // the record has another owner or version
	uncertain             // COMMIT was sent and not answered
)

// troubled is an error that the consumer's own part of a run met.
type troubled struct {
	kind kind
	err  error
}

func (t *troubled) Error() string { return t.err.Error() }
func (t *troubled) Unwrap() error { return t.err }

// kindOf looks at the outermost error only: what a handler wraps is its own.
func kindOf(err error) kind {
	if t, ok := err.(*troubled); ok { //nolint:errorlint // see above
		return t.kind
	}
	return ofHandler
}

// ours sorts an error of the consumer's own statements, COMMIT among them.
func (r *run) ours(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, txmq.ErrOutcomeUnknown):
		return &troubled{uncertain, err}
	case errors.Is(err, txmq.ErrLeaseLost):
		return &troubled{moved, err}
	case ownTimeout(err):
		return err // the handler's doing
	case errors.Is(err, txmq.ErrTxBroken), r.h.Store.Transient(err):
		return &troubled{passing, err}
	default:
		return err // would come again, as a misuse
	}
}

// judge joins what the handler returned with what its transaction knows.
func (r *run) judge(why, err error) error {
	if why == nil || err == nil {
		return err // a nil error over a broken transaction: Commit will tell
	}
	if !errors.Is(err, why) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	if errors.Is(why, txmq.ErrTxBroken) && !ownTimeout(why) {
		return &troubled{passing, err}
	}
	return err
}

// ownTimeout: the handler ran out of a time limit of its own, which says
// nothing about the database, and would again.
func ownTimeout(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
