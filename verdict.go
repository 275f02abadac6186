package txmq

// Verdict is what a half message's local transaction came to, as far as it is
// known. The zero value is Unknown.
type Verdict uint8

const (
	// Unknown makes the broker ask again.
	Unknown Verdict = iota
	// Commit makes the half message visible.
	Commit
	// Rollback makes the broker drop it.
	Rollback
)

// String is the word as it stands in logs and metrics.
func (v Verdict) String() string {
	switch v {
	case Commit:
		return "commit"
	case Rollback:
		return "rollback"
	default:
		return "unknown"
	}
}
