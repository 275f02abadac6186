package producer

import "github.com/txmq/txmq"

// Receipt says what is known of one call of SendInTransaction, also beside an
// error.
type Receipt struct {
	// EventID is the message's, or the one that was made for it.
	EventID string

	// Attempt names this call, on all halves that it stored. Empty when the
	// call was refused before anything was sent.
	Attempt string

	// MsgID is the client's name of the half message; it may repeat. Empty when
	// no half is known to be stored.
	MsgID string

	// Verdict is what the local transaction came to: Commit with a nil error;
	// Rollback where nothing was or ever will be committed by this call;
	// Unknown with an error that Is txmq.ErrOutcomeUnknown.
	Verdict txmq.Verdict

	// Ended says that the broker was sent the verdict, as far as the client
	// tells. False is no failure: the broker checks back, and the message
	// appears, or goes, somewhat later. True is no promise that it need not.
	Ended bool
}
