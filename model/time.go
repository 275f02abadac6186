package model

import (
	"database/sql/driver"
	"fmt"
	"time"
)

// Time is a UTC time of the database with millisecond precision; the zero value
// is NULL. It reads right whatever the DSN's loc is: the columns hold UTC, and
// a driver that attaches another zone to them moves the instant.
type Time struct{ time.Time }

// timeLayout is how both MySQL and SQLite write a DATETIME(3).
const timeLayout = "2006-01-02 15:04:05.000"

// Scan takes the wall clock of what the driver gives as UTC.
func (t *Time) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		t.Time = time.Time{}
	case time.Time:
		y, m, d := v.Date()
		t.Time = time.Date(y, m, d, v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), time.UTC)
	case []byte:
		return t.parse(string(v))
	case string:
		return t.parse(v)
	default:
		return fmt.Errorf("model.Time: can't read %T", v)
	}
	return nil
}

func (t *Time) parse(s string) (err error) {
	t.Time, err = time.ParseInLocation("2006-01-02 15:04:05.999999", s, time.UTC)
	return err
}

// Value writes UTC as text, so that no driver moves it to its loc.
func (t Time) Value() (driver.Value, error) {
	if t.IsZero() {
		return nil, nil
	}
	return t.UTC().Format(timeLayout), nil
}

// MarshalJSON gives null for NULL, else RFC 3339.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.Time.MarshalJSON()
}
