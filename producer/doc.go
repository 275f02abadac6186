// Package producer sends messages: a Producer those that become visible if and
// only if a local database transaction commits, a Sender those that belong to
// none, confirmed and in key order.
//
// Of a Producer: a half message goes to the broker first, hidden. Then the local transaction
// runs, with a row in the transaction log as its first statement; after COMMIT
// the broker is told to show the message. Whatever is lost on the way, the
// broker checks back, and that row answers (package checker).
//
// Invariants:
//   - The caller's function runs at most once per call, and only when a half
//     message is stored durably.
//   - Once its transaction has committed, SendInTransaction returns no error.
//   - The broker is told Rollback only when the transaction can't commit any
//     more, and Commit only when it has.
package producer
