// Package consumer runs handlers so that each event has one effect in the
// database, however often RocketMQ delivers it, and whatever dies in between.
// What the broker is told follows the consume record, never the other way.
//
// Invariants:
//   - Only a committed SUCCESS, a DEAD row or a duplicate of either acknowledges,
//     and a FAIL row that a job redrives.
//   - An error, a panic, a time-out or a lost lease is never success.
//   - In-progress, lock waits, deadlocks, a database that is away and a stop
//     cost an event none of its attempts.
package consumer
