package checker

// Reasons in txmq.Checked. They are label values of metrics and never change.
const (
	ReasonCommitted  = "committed"        // the row says COMMITTED: Commit
	ReasonRolledBack = "rolled back"      // the row was a fence, or the event went through the outbox: Rollback
	ReasonFenced     = "fenced"           // no row, old enough: this check inserted the fence: Rollback
	ReasonLastCheck  = "last check"       // the same, because the broker won't ask again: Rollback
	ReasonForeign    = "foreign half"     // Config.Foreign was asked
	ReasonLocked     = "locked"           // the local transaction is running: Unknown, as all below
	ReasonTooYoung   = "too young"        // no row yet, and it may still come
	ReasonNotOurs    = "not ours"         // neither database ID nor attempt, and no Config.Foreign
	ReasonForeignDB  = "foreign database" // another service's half in our producer group, or a half without database ID
	ReasonNoID       = "no event id"      // a property of txmq's, but no event ID
	ReasonMalformed  = "malformed"        // a topic, attempt or event ID that no row can have
	ReasonPurged     = "purged"           // born before the log's purge watermark: the row may have been deleted
	ReasonBadState   = "unknown state"    // the row holds what this program does not know
	ReasonDatabase   = "database error"
	ReasonTimeout    = "timeout"
	ReasonPanic      = "panic"
	ReasonBusy       = "busy" // too many checks hang beyond their time-out
	ReasonClosed     = "closed"
)
