package txmq

import (
	"context"
	"time"
)

// Event is one thing that happened inside txmq. It feeds logs, metrics, traces
// and tests alike. The set is closed: only this package declares events, and
// new ones break nobody who switches on type.
type Event interface{ event() }

// Observe receives every event, on the goroutine where it happened: it must be
// quick and safe for concurrent use. Nil: nobody looks.
type Observe func(context.Context, Event)

// Emit calls o with e when there is somebody to call. A panic of o costs the
// observer that event and nothing else: work that goes right must not end
// because it is watched.
func (o Observe) Emit(ctx context.Context, e Event) {
	if o == nil {
		return
	}
	defer func() { _ = recover() }()
	o(ctx, e)
}

// HalfSent: a half message is on the broker, its local function has not run.
type HalfSent struct{ Topic, EventID, Attempt, MsgID string }

// SendEnded: SendInTransaction is about to return.
type SendEnded struct {
	Topic, EventID, Attempt string
	Verdict                 Verdict // what is known of the local transaction
	Took                    time.Duration
	Err                     error
}

// Sent: Sender.Send is about to return.
type Sent struct {
	Topic, EventID string
	MsgID          string // empty unless the broker has confirmed
	Tries          int    // requests that were made; 0 when it was refused before the first
	Took           time.Duration
	Err            error
}

// EndTransactionLost: the client could not hand the end-transaction request to
// the network; the broker will check back.
type EndTransactionLost struct {
	Topic, EventID, Attempt string
	Err                     error
}

// Checked: a check-back was answered.
type Checked struct {
	Topic, EventID, Attempt string
	Times                   int // the broker's count of checks for this half, from 1
	Verdict                 Verdict
	Fenced                  bool   // this check inserted the fence
	Reason                  string // a short constant: "committed", "too young", "foreign database", ...
	Took                    time.Duration
	Err                     error // what went wrong where the verdict is Unknown because of it
}

// Outcome says what became of a delivery. The words are label values.
type Outcome string

// Outcomes of a delivery.
const (
	OutcomeDone       Outcome = "done"        // the handler's effect is committed
	OutcomeSkipped    Outcome = "skipped"     // the handler said Skip; SUCCESS with its reason
	OutcomeDuplicate  Outcome = "duplicate"   // it was committed before; acknowledged
	OutcomeInProgress Outcome = "in_progress" // another worker has it; later
	OutcomeRetry      Outcome = "retry"       // failed or could not be tried; later
	OutcomeDead       Outcome = "dead"        // buried now, or found dead
)

// Delivered: a delivery was answered.
type Delivered struct {
	Consumer, EventID, MsgID string
	Topic                    string
	Outcome                  Outcome
	Attempt                  int  // 1 for the first run of the handler, 0 when it did not run
	TookOver                 bool // the record was taken from a worker whose lease was over
	Took                     time.Duration
	Err                      error
}

// LeaseLost: a heartbeat, or what was to record the handler's end, found the row
// moved. Once for a run.
type LeaseLost struct{ Consumer, EventID string }

// PayloadConflict: an event ID came again with another body.
type PayloadConflict struct{ Consumer, EventID, MsgID string }

// Swept: the sweep put a stuck PROCESSING row to FAIL.
type Swept struct {
	Consumer, EventID string
	Owner             string // whose lease was over
}

// RedriveWay says how a job has an event run again. The words are label values.
type RedriveWay string

// Ways of a re-drive.
const (
	RedriveSendBack    RedriveWay = "send_back"   // the broker copies its stored message to the one group
	RedriveRepublish   RedriveWay = "republish"   // it has none any more, so the row's goes to the one group
	RedriveCompensator RedriveWay = "compensator" // the service's own function ran, and no message was sent
)

// Redriven: a job had a FAIL record's event run again, or tried to.
type Redriven struct {
	Consumer, EventID string
	Way               RedriveWay
	Dead              bool // the record is DEAD now
	Err               error
}

// DeadLetterFound: a message in a dead-letter queue had no record; it has a DEAD
// one now.
type DeadLetterFound struct {
	Consumer, EventID, MsgID string
	Err                      error // why it stands under a key made from its place; nil if it has an event ID
}

// JobRun: one run of a job has ended.
type JobRun struct {
	Job  string
	Done int // rows changed
	Took time.Duration
	Err  error
}

func (HalfSent) event()           {}
func (SendEnded) event()          {}
func (Sent) event()               {}
func (EndTransactionLost) event() {}
func (Checked) event()            {}
func (Delivered) event()          {}
func (LeaseLost) event()          {}
func (PayloadConflict) event()    {}
func (Swept) event()              {}
func (Redriven) event()           {}
func (DeadLetterFound) event()    {}
func (JobRun) event()             {}
