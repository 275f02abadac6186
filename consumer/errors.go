package consumer

import (
	"errors"
	"fmt"
)

type permanentError struct{ err error }

func (e *permanentError) Error() string { return "permanent: " + e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that no retry can mend: the event is DEAD at once
// and the message goes to the broker's dead-letter queue. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent tells whether err is, or wraps, what Permanent made.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type skipError struct{ reason string }

func (e *skipError) Error() string { return "skipped: " + e.reason }

// Skip ends an event without work: returned by a handler, it rolls back what the
// handler did on its transaction, and records SUCCESS with the reason in
// last_error. For events that need nothing, such as a payment of a cancelled
// order.
func Skip(reason string) error { return &skipError{reason} }

// IsSkip tells whether err is, or wraps, what Skip made.
func IsSkip(err error) bool {
	var s *skipError
	return errors.As(err, &s)
}

// PanicError is what a handler's panic becomes; it counts as an attempt.
type PanicError struct {
	Value any
	Stack []byte
}

// Error has the value; the stack is in the log.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

func panicked(v any, stack []byte) error { return &PanicError{Value: v, Stack: stack} }

// Causes of a handler's context, and reasons of a delivery's end.
var (
	errDeadline = errors.New("handler deadline is over")
	errNotBegun = errors.New("the handler could not begin in time: its key or a connection was not free")
	errGone     = errors.New("handler ended its goroutine without returning")
	errTurn     = errors.New("waits for its turn: of the events whose worker died one runs at a time")
	errUsedUp   = errors.New("attempts are used up: the workers of earlier runs died")
)
