package txmq

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a caller branches on, with errors.Is. They come wrapped in an
// *OpError that names the event.
var (
	// ErrFenced: the checker has answered Rollback for this attempt, so its
	// local transaction may no longer commit. Only this call is dead; call
	// again. From SendInTransaction.
	ErrFenced = errors.New("attempt is fenced: the broker was told to roll it back")

	// ErrDuplicateEvent: this operation has committed before, on this topic.
	// The local function did not run. From SendInTransaction.
	ErrDuplicateEvent = errors.New("event has committed before")

	// ErrOutcomeUnknown: COMMIT was sent and the database can't be asked
	// whether it happened. Neither success nor failure: hand the error to
	// Resolve later. The broker's check-back settles the message by itself.
	ErrOutcomeUnknown = errors.New("outcome of the commit is unknown")

	// ErrHalfNotDurable: the broker stored the half message but not safely
	// (flush or replica time-out). The local function did not run.
	ErrHalfNotDurable = errors.New("half message is not durable")

	// ErrNotDurable: the broker stored the message but not safely (flush or
	// replica time-out), so it may be delivered, and may be lost. From
	// Sender.Send, after its last try, and always with ErrMayBeStored.
	ErrNotDurable = errors.New("message is stored, but not durable")

	// ErrMayBeStored: no try was confirmed, and at least one may have reached
	// the broker, so the message may be delivered, also later. Send it again
	// with the same event ID, by which consumers tell it. From Sender.Send,
	// whose other errors mean that nothing is stored. (SendInTransaction has
	// ErrOutcomeUnknown, which is about the database's COMMIT.)
	ErrMayBeStored = errors.New("message may be stored")

	// ErrBrokerUnreachable: no broker or name server answered in time.
	ErrBrokerUnreachable = errors.New("broker can't be reached")

	// ErrRefused: the broker answered, and would refuse the same request
	// again (no topic, no permission, too large).
	ErrRefused = errors.New("broker refuses the request")

	// ErrTxBroken: the server has broken the transaction (deadlock, lock wait,
	// lost connection), so what the function did before may be gone. Nothing
	// was committed.
	ErrTxBroken = errors.New("transaction is broken")

	// ErrTxMisused: the function ended its transaction itself, ran a statement
	// that would (COMMIT, BEGIN, DDL), or used it after returning. Nothing was
	// committed by txmq.
	ErrTxMisused = errors.New("transaction is not the function's to end")

	// ErrInTransaction: the *gorm.DB is inside a transaction already; txmq has
	// to begin and end the one it pairs with a message.
	ErrInTransaction = errors.New("the *gorm.DB is already in a transaction")

	// ErrLeaseLost: the row has moved to another owner or version; what this
	// worker did is rolled back.
	ErrLeaseLost = errors.New("lease is lost")

	// ErrPayloadMismatch: an event ID came again with another body.
	ErrPayloadMismatch = errors.New("payload mismatch: event ID was seen with another body")

	// ErrMissingID: a message carries no event ID.
	ErrMissingID = errors.New("message has no event ID")

	// ErrNotFound: no such row.
	ErrNotFound = errors.New("not found")

	// ErrJobRunning: another run of the job is under way, in this process or in
	// another replica. From RunOnce, which does not wait for it.
	ErrJobRunning = errors.New("another run of this job is under way")

	// ErrSubscriptionMismatch: a live member of the consumer group subscribes to
	// other topics or tags. From the consumer's Run, before it consumes anything.
	ErrSubscriptionMismatch = errors.New("the consumer group has live members with another subscription")

	// ErrClosed: the component is stopping or has stopped.
	ErrClosed = errors.New("closed")

	// ErrNotStarted: Start has not been called, or did not succeed.
	ErrNotStarted = errors.New("not started")
)

// OpError says which call failed, and for which event.
type OpError struct {
	Op      string // "send", "check", "claim", ...
	EventID string // empty where no single event is meant
	Err     error
}

// Error is one line, lower case.
func (e *OpError) Error() string {
	if e.EventID == "" {
		return "txmq: " + e.Op + ": " + e.Err.Error()
	}
	return fmt.Sprintf("txmq: %s %q: %v", e.Op, e.EventID, e.Err)
}

// Unwrap gives the cause.
func (e *OpError) Unwrap() error { return e.Err }

// OutcomeUnknownError carries what Resolve needs. It Is ErrOutcomeUnknown.
type OutcomeUnknownError struct {
	Topic   string
	EventID string
	Attempt string
	Err     error // what the database said
}

// Error names the event and the attempt.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%v: event %q attempt %s: %v", ErrOutcomeUnknown, e.EventID, e.Attempt, e.Err)
}

// Unwrap gives the database's error.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrOutcomeUnknown) true.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// FieldError names one bad field of a Config or a Message, its value, and what
// would be right. Constructors report all bad fields at once, joined.
type FieldError struct {
	Field string // "producer.Config.Group"
	Value any    // nil when the field is missing; never a secret or a body
	Want  string // "1 to 120 letters, digits, _ - % |"
}

// Error is one line: field, value, what would be right.
func (e *FieldError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("%s is missing: want %s", e.Field, e.Want)
	}
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s is %q: want %s", e.Field, s, e.Want)
	}
	return fmt.Sprintf("%s is %v: want %s", e.Field, e.Value, e.Want)
}

// SchemaError says that the database is not ready for txmq, and what to do.
type SchemaError struct {
	Table   string // empty where it is not about one table
	Problem string
	Hint    string
}

// Error ends with the hint.
func (e *SchemaError) Error() string {
	var b strings.Builder
	b.WriteString("txmq: schema: ")
	if e.Table != "" {
		b.WriteString("table " + e.Table + ": ")
	}
	b.WriteString(e.Problem)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}
