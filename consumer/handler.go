package consumer

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"gorm.io/gorm"

	"github.com/txmq/txmq/model"
)

// Func is a handler's work on one delivery. Everything it does on tx commits
// together with the consume record, or not at all; it must not end tx, run DDL
// on it, or keep it. ctx ends at the handler's deadline, when the lease is lost,
// and when a stop has run out of its drain. It may run more than once for one
// event; its effect on tx stays one.
type Func func(ctx context.Context, tx *gorm.DB, d *Delivery) error

// Work is a handler's function with the mode it runs in. Atomic, Tracked and
// External make one; the zero value is refused by New.
type Work struct {
	fn   Func
	mode mode
}

type mode uint8

const (
	modeAtomic mode = iota
	modeTracked
	modeExternal
)

// claims: the record is claimed under a lease before the handler runs.
func (m mode) claims() bool { return m != modeAtomic }

// Atomic runs fn in one transaction with its consume record, which is written
// as SUCCESS and seen by nobody before the COMMIT: one statement more than the
// handler's own. The mode to start with. After a process of the group has died,
// what may have been under way in it runs as in Tracked mode: a message that
// kills its process is counted so, and ends in DEAD.
func Atomic(fn Func) Work { return Work{fn: fn} }

// Tracked first commits a PROCESSING row under a lease, so that people and jobs
// see who works on what, renews it while fn runs, and marks SUCCESS in fn's
// transaction. For handlers that run long.
func Tracked(fn Func) Work { return Work{fn: fn, mode: modeTracked} }

// External runs fn without a transaction, under a lease as Tracked does, and
// marks SUCCESS when fn has returned. For effects outside the database: they
// happen at least once, one worker at a time as far as leases tell. Pass the
// Delivery's EventID and Version on, so that the other side can tell repeats and
// refuse a worker whose lease was taken.
func External(fn func(ctx context.Context, d *Delivery) error) Work {
	if fn == nil {
		return Work{}
	}
	return Work{
		fn:   func(ctx context.Context, _ *gorm.DB, d *Delivery) error { return fn(ctx, d) },
		mode: modeExternal,
	}
}

// Handler says what to do with the messages of one topic, or of some of its tags.
type Handler struct {
	// Topic is required.
	Topic string

	// Tags restricts it: "a || b". SQL92 filters are not supported. Default:
	// all, as "*". Several handlers of one topic have Tags, and no tag in two.
	Tags string

	// Name is the scope of an event ID and the column consumer of its record:
	// at most 255 bytes, no two handlers' the same. Changing it makes every
	// event new. Default "<group>:<topic>", so several handlers of one topic
	// need names.
	Name string

	// Do is the work, made by Atomic, Tracked or External. Required.
	Do Work

	// Store is the database that this handler changes, and that its records are
	// in: for tenants, or several databases in one process. Default
	// Config.Store.
	Store *model.Store

	// EventID names the event of a message. Default: the property
	// TXMQ_EVENT_ID, which txmq's producers set. FromKey and FromKeyAndTag are
	// for messages of other producers.
	EventID func(*primitive.MessageExt) string
}

// Delivery is one message on its way through a handler.
type Delivery struct {
	// EventID names the logical operation.
	EventID string
	// Attempt counts the runs of the handler for this event, from 1.
	Attempt int
	// Version rises with each change of hands: the fencing number to pass to
	// systems that are not in this database. 1 for a first run.
	Version int64
	// Topic the message was sent to, also when it comes from the retry topic.
	Topic string
	Tag   string
	Keys  string // space-separated, as RocketMQ keeps them
	Body  []byte // valid until the handler returns; copy what you keep
	// Born is the first birth by the producer's clock, zero when unknown.
	Born time.Time
	// Message is all that the broker said.
	Message *primitive.MessageExt

	after []func(context.Context)
}

// AfterCommit has f run once this delivery's SUCCESS is committed, in the order
// of the calls, and not at all after a failure. It is a best effort: a process
// that dies in between leaves it out, so what must not be left out belongs into
// the transaction; and in Atomic mode it may run twice, when a COMMIT was lost
// and another worker has done the event before that is found out. f's context
// is bounded by the handler's deadline; a panic in it is logged. Not for use
// after the handler has returned.
func (d *Delivery) AfterCommit(f func(ctx context.Context)) { d.after = append(d.after, f) }

// FromKey takes the message's only key as event ID; none, or more than one,
// gives none. Only right where one key names one event of the topic: an order
// number in the keys of two different events would lose the second.
func FromKey(m *primitive.MessageExt) string {
	key := m.GetKeys()
	for _, c := range key {
		if c == ' ' {
			return ""
		}
	}
	return key
}

// FromKeyAndTag joins the message's only key and its tag, for topics whose tag
// says which event of the order it is.
func FromKeyAndTag(m *primitive.MessageExt) string {
	key, tag := FromKey(m), m.GetTags()
	if key == "" || tag == "" {
		return ""
	}
	return key + "\x1f" + tag
}
