// Package protocol is what the end-to-end tests and their child process say to
// each other: a Setup in the environment, one JSON Command a line on the
// child's stdin, one JSON Line a line on its stdout.
package protocol

import "time"

// Environment is the variable that holds the Setup, as JSON.
const Environment = "TXMQ_E2E"

// Setup says which service the child is.
type Setup struct {
	DSN        string
	NameServer string
	Topic      string

	// ProducerGroup makes it a producer; Proxy sends its traffic through a
	// proxy of the child's own, which Send.LoseEnd needs.
	ProducerGroup string
	Proxy         bool
	FenceAfter    time.Duration

	// Raw makes it the client's own transaction producer, with a
	// checker.Listener.
	Raw bool

	// ConsumerGroup makes it a consumer, Handler is the name of its handler.
	// Tracked and External are its mode, without either it is Atomic.
	ConsumerGroup string
	Handler       string
	Tracked       bool
	External      bool
	Lease         time.Duration
	Deadline      time.Duration

	// HoldBefore and HoldAfter name the events whose handler waits for the
	// command Release before or after its effect, whatever its context says.
	HoldBefore, HoldAfter []string

	// Kill names the events whose handler ends the process with SIGKILL, after
	// its effect. MaxAttempts is the consumer's, 0 for its default.
	Kill        []string
	MaxAttempts int

	// Jobs runs the sweep every second.
	Jobs bool
}

// What a Command asks for.
const (
	DoSend    = "send"    // one SendInTransaction
	DoOrphan  = "orphan"  // a PROCESSING row of Event, as a worker that died leaves it
	DoRelease = "release" // lets go all that is held
	DoStop    = "stop"    // stops cleanly and ends
)

// Command is one line to the child. Sends and orphans are done in order, the
// others at once.
type Command struct {
	Do    string
	Event string
	Body  string

	// Fail makes the local function return an error.
	Fail bool
	// Hold makes it wait for Release after its effect.
	Hold bool
	// LoseEnd drops the end-transaction request on the wire.
	LoseEnd bool
	// Tries is how often an error or a panic is met by another call.
	Tries int
}

// Types of Line beside the names of txmq's events.
const (
	Ready   = "ready"   // connected and subscribed
	Local   = "local"   // a held local function has done its effect
	Holding = "holding" // a held handler waits
	Handler = "handler" // a handler has begun
	Sent    = "sent"    // the command send is over
	Stopped = "stopped" // the last line
)

// Line is one line from the child. Most are txmq's events.
type Line struct {
	Type     string
	Event    string         `json:",omitempty"`
	Attempt  string         `json:",omitempty"`
	Verdict  string         `json:",omitempty"`
	Reason   string         `json:",omitempty"`
	Outcome  string         `json:",omitempty"`
	Err      string         `json:",omitempty"`
	Times    int            `json:",omitempty"` // of checks
	Run      int            `json:",omitempty"` // of the handler
	Fenced   bool           `json:",omitempty"`
	TookOver bool           `json:",omitempty"`
	Hits     map[string]int `json:",omitempty"` // of the fault points, in Stopped
}

// Body is what a message holds: how often the handler fails at first.
type Body struct{ Fail int }
