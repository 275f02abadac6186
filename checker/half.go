package checker

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

// half is what a check-back says of itself. Nothing in it is trusted but as a
// key: properties come from the wire.
type half struct {
	ours      bool // it carries a database ID or an attempt
	database  string
	attempt   model.Attempt
	msgID     string
	earliest  time.Time // the earlier of what is said of its birth, both by the producer's clock
	latest    time.Time // the later
	times     int       // this is the times-th check, by the broker's count
	malformed bool
}

// maxAttempt bounds an attempt that comes from the wire; ours are UUIDs of 36.
const maxAttempt = 64

func readHalf(m *primitive.MessageExt, group string) half {
	topic := m.GetProperty(primitive.PropertyRealTopic) // a discarded half lies on another topic
	if topic == "" {
		topic = m.Topic
	}
	h := readProperties(&m.Message, topic, group)
	h.msgID = m.MsgId
	h.times, _ = strconv.Atoi(m.GetProperty(primitive.PropertyTranscationCheckTimes)) // 0 counts as the first
	h.readBirth(m)
	return h
}

// readProperties reads what a half says of itself before it is checked, too.
func readProperties(m *primitive.Message, topic, group string) half {
	h := half{
		database: m.GetProperty(txmq.PropertyDatabaseID),
		attempt: model.Attempt{
			ID:      m.GetProperty(txmq.PropertyAttempt),
			EventID: m.GetProperty(txmq.PropertyEventID),
			Topic:   topic,
			Group:   group,
		},
	}
	a := &h.attempt
	// The event ID alone is what other producers set for our consumers.
	h.ours = h.database != "" || a.ID != ""
	if a.Group == "" {
		a.Group = m.GetProperty(primitive.PropertyProducerGroup)
	}
	if a.Group == "" {
		a.Group = "unknown"
	}
	if a.ID == "" && a.EventID != "" {
		a.ID = attemptOfEvent(a.Topic, a.EventID)
	}
	h.malformed = a.Topic == "" || len(a.Topic) > txmq.MaxEventIDBytes ||
		len(a.ID) > maxAttempt || len(a.EventID) > txmq.MaxEventIDBytes || len(a.Group) > txmq.MaxEventIDBytes
	return h
}

// strange says why the log of this database can't answer for a half of ours:
// the reason, empty if it can, and what is wrong.
func (h *half) strange(database string) (string, error) {
	switch {
	case h.database != database:
		return ReasonForeignDB, errForeignDB
	case h.attempt.EventID == "":
		return ReasonNoID, txmq.ErrMissingID
	case h.malformed:
		return ReasonMalformed, errMalformed
	default:
		return "", nil
	}
}

func (h *half) readBirth(m *primitive.MessageExt) {
	for _, ms := range []int64{m.BornTimestamp, millis(m.GetProperty(txmq.PropertyBorn))} {
		if ms <= 0 {
			continue
		}
		t := time.UnixMilli(ms)
		if h.earliest.IsZero() || t.Before(h.earliest) {
			h.earliest = t
		}
		if t.After(h.latest) {
			h.latest = t
		}
	}
}

func millis(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// age is the smaller of two: since its birth by the producer's clock, and by
// the number of checks. Neither alone is to be trusted.
func (h *half) age(now time.Time, interval time.Duration) time.Duration {
	byChecks := time.Duration(h.times) * interval
	if h.latest.IsZero() {
		return byChecks
	}
	return min(byChecks, now.Sub(h.latest))
}

// attemptOfEvent stands for the attempt of a half that has none, from a client
// that does not stamp: its event ID, brought together with the topic, since one
// event may go to two topics, and to the width of the column. All calls of one
// event have the same, so that a fence is for the event and for ever.
func attemptOfEvent(topic, eventID string) string {
	sum := sha256.Sum256([]byte(topic + "\x00" + eventID))
	return "e-" + hex.EncodeToString(sum[:])[:maxAttempt-2]
}
