// Package txmq holds the words that every part of the toolkit shares: the
// message, the connection to the broker, the verdict of a check-back, the
// errors a caller branches on, and the events it can observe. It has no logic
// of its own; producer, checker, consumer and jobs have.
//
// Invariants:
//   - The zero Verdict is Unknown: an answer that was forgotten commits nothing.
//   - No error, event or printed Broker carries a message body or a secret.
package txmq
