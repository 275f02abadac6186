// Package dbclock is the one seam through which this module's tests move the
// database's clock. Nothing else may: a lease is decided by the database.
package dbclock

import (
	"sync/atomic"
	"time"
)

// Offset is added to the database's clock in every statement of a store that
// was opened with it. The zero value adds nothing. Safe for concurrent use.
type Offset struct{ d atomic.Int64 }

// Add moves the clock by d, forward when positive.
func (o *Offset) Add(d time.Duration) { o.d.Add(int64(d)) }

// Microseconds is the offset in the unit of the SQL expressions; 0 for nil.
func (o *Offset) Microseconds() int64 {
	if o == nil {
		return 0
	}
	return time.Duration(o.d.Load()).Microseconds()
}
