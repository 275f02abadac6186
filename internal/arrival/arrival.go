// Package arrival tells how a delivered message stands in its consume record.
// The consumer and the dead-letter intake must say the same of one message.
package arrival

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// Reasons of a DEAD row under a key made from the message's place.
const (
	MissingID       = "missing_id"
	PayloadMismatch = "payload_mismatch"
)

// EventID is the property TXMQ_EVENT_ID, which txmq's producers set.
func EventID(m *primitive.MessageExt) string { return m.GetProperty(txmq.PropertyEventID) }

// Of makes the arrival of a message at the handler of that name. An error
// (txmq.ErrMissingID) means that the message can't have a record under its event
// ID; the rest is filled in all the same. eventID is the user's, and may panic.
func Of(m *primitive.MessageExt, handler string, eventID func(*primitive.MessageExt) string) (model.Arrival, error) {
	at := model.Position{Topic: m.Topic, QueueOffset: m.QueueOffset, MsgID: m.MsgId, OffsetMsgID: m.OffsetMsgId}
	if m.Queue != nil {
		at.BrokerName, at.QueueID = m.Queue.BrokerName, m.Queue.QueueId
	}
	a := model.Arrival{Consumer: handler, PayloadHash: sha256.Sum256(m.Body), At: at}
	var err error
	if a.EventID, err = call(eventID, m); err != nil {
		return a, err
	}
	switch n := len(a.EventID); {
	case n == 0:
		return a, txmq.ErrMissingID
	case n > txmq.MaxEventIDBytes:
		return a, fmt.Errorf("%w that fits: it has %d bytes, at most 255 do", txmq.ErrMissingID, n)
	}
	return a, nil
}

func call(eventID func(*primitive.MessageExt) string, m *primitive.MessageExt) (id string, err error) {
	defer func() {
		if v := recover(); v != nil {
			id, err = "", fmt.Errorf("%w: EventID panicked: %v", txmq.ErrMissingID, v)
		}
	}()
	return eventID(m), nil
}

// Place is a key for a message that can't have one of its own: where it lies,
// or for a copy that was sent back, where the original does.
func Place(reason string, m *primitive.MessageExt) string {
	origin := cmp.Or(m.GetProperty(primitive.PropertyOriginMessageId), m.OffsetMsgId)
	key := reason + ":" + m.MsgId + ":" + origin
	return key[:min(len(key), txmq.MaxEventIDBytes)]
}
