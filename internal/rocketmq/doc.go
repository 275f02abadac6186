// Package rocketmq is the only place that touches the moving parts of the
// RocketMQ client. It turns the client's surprises into plain promises and
// knows no database. Messages come out as *primitive.MessageExt; nothing else
// of the client does.
//
// Invariants:
//   - Only an explicit Ack acknowledges a message, and only an explicit Commit
//     commits a half: errors, panics, time-outs and zero values never do.
//   - Every component has a client of its own, and that client is shut down
//     once, and only if it was started.
//   - No message body gets into an error or a log line.
//
// TLS and namespaces are not offered: the client's TLS verifies nobody and
// switches on for the whole process, and its namespaces prefix topics twice.
package rocketmq
