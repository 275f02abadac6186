package rocketmq

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
)

// Half is a half message that the broker has stored durably, as given to the
// local function. MsgID is the client's and may repeat; the rest says where
// this copy lies and changes with each check-back.
type Half struct {
	Topic, MsgID, OffsetMsgID, BrokerName string
	QueueID                               int
	QueueOffset                           int64
}

// HalfResult says how far a SendHalf came.
type HalfResult struct {
	Half    Half
	Ran     bool         // local was called
	Verdict txmq.Verdict // what local returned; what the broker was told
	// Ended: the end-transaction was handed to the network, as far as the
	// client tells; it is silent about much (Q05). False: the broker will check
	// back. True promises nothing more than that it need not.
	Ended bool
}

// call is one SendHalf under way. The client works on a goroutine of its own,
// local runs on the caller's; they meet here.
type call struct {
	state   atomic.Int32          // who was first: the broker's answer, or the caller's patience
	sent    *primitive.SendResult // the client's goroutine only, until done
	stored  chan Half             // 1: the half is there, run local
	verdict chan txmq.Verdict     // 1: local is over
	done    chan struct{}         // closed when the client has returned

	// readable when done is closed
	result   *primitive.TransactionSendResult
	err      error
	panicked bool
}

const (
	callOpen int32 = iota
	callStored
	callAbandoned
)

func newCall() *call {
	return &call{stored: make(chan Half, 1), verdict: make(chan txmq.Verdict, 1), done: make(chan struct{})}
}

// claim is the client's side: the half is stored, may local run?
func (c *call) claim() bool { return c.state.CompareAndSwap(callOpen, callStored) }

// abandon is the caller's side: it gives up, unless the half is stored by now.
func (c *call) abandon() bool { return c.state.CompareAndSwap(callOpen, callAbandoned) }

// run calls local and hands its verdict to the client, also when local does
// not return (panic, runtime.Goexit): then Unknown. Before it lets a panic go
// on, and before it returns, it waits until the client has sent the
// end-transaction, but not longer than endTimeout, for which it takes the
// caller's timer.
func (c *call) run(local func(Half) txmq.Verdict, half Half, limit *time.Timer) (v txmq.Verdict) {
	defer func() {
		c.verdict <- v
		limit.Reset(endTimeout)
		select {
		case <-c.done:
		case <-limit.C:
		}
	}()
	return local(half)
}

// ended says whether the client has returned, and without a panic (Q06).
func (c *call) ended() bool {
	select {
	case <-c.done:
		return !c.panicked && c.err == nil
	default:
		return false
	}
}

func halfOf(r *primitive.SendResult) Half {
	if r == nil {
		return Half{}
	}
	h := Half{MsgID: r.MsgID, OffsetMsgID: r.OffsetMsgID, QueueOffset: r.QueueOffset}
	if q := r.MessageQueue; q != nil {
		h.Topic, h.BrokerName, h.QueueID = q.Topic, q.BrokerName, q.QueueId
	}
	return h
}

// durable is an error unless the broker has stored the message and vouches for
// it. The client calls the other outcomes a success (Q08).
func durable(r *primitive.SendResult, otherwise error) error {
	if r == nil {
		return errors.New("client returned neither result nor error")
	}
	switch r.Status {
	case primitive.SendOK:
		return nil
	case primitive.SendFlushDiskTimeout:
		return fmt.Errorf("%w: flush to disk timed out", otherwise)
	case primitive.SendFlushSlaveTimeout:
		return fmt.Errorf("%w: replica timed out", otherwise)
	case primitive.SendSlaveNotAvailable:
		return fmt.Errorf("%w: no replica is available", otherwise)
	default:
		return fmt.Errorf("%w: status %d", otherwise, r.Status)
	}
}

// ClientState is the client's word for a verdict.
func ClientState(v txmq.Verdict) primitive.LocalTransactionState {
	switch v {
	case txmq.Commit:
		return primitive.CommitMessageState
	case txmq.Rollback:
		return primitive.RollbackMessageState
	default:
		return primitive.UnkonwnState
	}
}
