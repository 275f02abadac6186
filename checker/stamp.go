package checker

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/uuid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/rocketmq"
)

// Stamp writes on m what its check-back will be answered by: the event ID (1 to
// 255 bytes, compared byte by byte), this database, the time, and a new attempt.
// Call it before each send, also of a message that is sent again, and after
// WithProperties, which replaces all. Every bad field is reported, joined, each
// a *txmq.FieldError: the event ID, a delay (a half can't be delayed), and
// properties with control characters, which would forge others (Q16). It does
// no I/O; after an error m is as it was.
func (l *Listener) Stamp(m *primitive.Message, eventID string) error {
	if err := checkStamp(m, eventID); err != nil {
		return err
	}
	attempt, err := uuid.NewV7()
	if err != nil {
		return &txmq.OpError{Op: "stamp", EventID: eventID, Err: err}
	}
	m.WithProperty(txmq.PropertyEventID, eventID)
	m.WithProperty(txmq.PropertyAttempt, attempt.String())
	m.WithProperty(txmq.PropertyDatabaseID, l.check.cfg.Store.DatabaseID())
	m.WithProperty(txmq.PropertyBorn, strconv.FormatInt(time.Now().UnixMilli(), 10))
	return nil
}

// delays are what old brokers send round in circles on a half (Q17).
var delays = []string{primitive.PropertyDelayTimeLevel, primitive.PropertyTimerDeliverMS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS"}

func checkStamp(m *primitive.Message, eventID string) error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &txmq.FieldError{Field: "checker.Listener.Stamp " + field, Value: value, Want: want})
	}
	want := fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", txmq.MaxEventIDBytes)
	switch {
	case eventID == "":
		bad("eventID", nil, want)
	case len(eventID) > txmq.MaxEventIDBytes:
		bad("eventID", fmt.Sprintf("%d bytes", len(eventID)), want)
	case !rocketmq.IsText(eventID):
		bad("eventID", eventID, want)
	}
	if m == nil {
		bad("m", nil, "a message")
		return errors.Join(errs...)
	}
	props := m.GetProperties()
	names := make([]string, 0, len(props))
	for name := range props {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case slices.Contains(delays, name):
			bad("m, property "+name, props[name], "none: a transactional message can't be delayed")
		case !rocketmq.IsText(name), !rocketmq.IsText(props[name]):
			bad(fmt.Sprintf("m, property %q", name), fmt.Sprintf("%d bytes", len(props[name])), "valid UTF-8 without control characters")
		}
	}
	return errors.Join(errs...)
}
