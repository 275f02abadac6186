// Package cli is the txmq command: what cmd/txmq does beyond catching signals,
// so that tests can call it.
//
// Invariants:
//   - No output carries a password: neither of the DSN as parsed, nor one that
//     was mistyped so that its password is taken for something else.
//   - Exit codes are 0, 1 for a failure and 2 for usage; each error ends with a
//     line "hint: ..." on stderr.
//   - Message bodies are never read, so never shown.
package cli
