// Package fault names the places where txmq can be made to die, to panic or to
// meet an error, so that each of them is tested. Built without the tag
// txmq_fault, Point is nothing, and no name is left in the binary.
package fault

// Name of a fault point.
type Name string

// The points, in the order in which a message meets them.
const (
	SendBeforeHalf   Name = "fault:send/before-half"
	SendAfterHalf    Name = "fault:send/after-half"     // the half is stored, BEGIN is not sent
	SendAfterLog     Name = "fault:send/after-log"      // inside the local transaction, before the caller's function
	SendBeforeCommit Name = "fault:send/before-commit"  // the caller's function is done
	SendAfterCommit  Name = "fault:send/after-commit"   // before the end-transaction request
	CheckBefore      Name = "fault:check/before"        // a check-back has come
	CheckAfterFence  Name = "fault:check/after-fence"   // FENCED is inserted, not committed
	CheckAnswer      Name = "fault:check/before-answer" // decided, not yet answered

	ConsumeReceived     Name = "fault:consume/received"      // before anything is read
	ConsumeAfterApply   Name = "fault:consume/after-apply"   // Atomic: inside the transaction, before the handler
	ConsumeAfterClaim   Name = "fault:consume/after-claim"   // Tracked: the PROCESSING row is committed
	ConsumeAfterHandler Name = "fault:consume/after-handler" // before Succeed and COMMIT
	ConsumeAfterCommit  Name = "fault:consume/after-commit"  // before the acknowledgement
	ConsumeBeforeFail   Name = "fault:consume/before-fail"   // rolled back, FAIL is not written
	ConsumeAfterFail    Name = "fault:consume/after-fail"    // FAIL is written, the broker is not told

	SweepBeforeRow Name = "fault:sweep/before-row" // a stuck row is found, not yet changed
	JobAfterLease  Name = "fault:job/after-lease"  // the job's lease is taken, the job has not run
)

// All lists every point.
func All() []Name {
	return []Name{
		SendBeforeHalf, SendAfterHalf, SendAfterLog, SendBeforeCommit, SendAfterCommit,
		CheckBefore, CheckAfterFence, CheckAnswer,
		ConsumeReceived, ConsumeAfterApply, ConsumeAfterClaim, ConsumeAfterHandler, ConsumeAfterCommit,
		ConsumeBeforeFail, ConsumeAfterFail,
		SweepBeforeRow, JobAfterLease,
	}
}
