// Package checker answers RocketMQ's check-backs from the transaction log: did
// the local transaction of this half message commit?
//
// A half without a row in the log may belong to a transaction that is slow, not
// dead. Before Rollback is said, the checker therefore inserts a fence under the
// half's attempt; from then on its transaction can't commit. Whatever is not
// certain is Unknown, and the broker asks again.
//
// Invariants:
//   - Commit is answered only for a row that says COMMITTED by the half's way.
//   - Rollback is answered only when a committed row makes a later commit of
//     that attempt by the half's way impossible.
//   - Errors, panics, time-outs and the halves of other databases are Unknown.
package checker
