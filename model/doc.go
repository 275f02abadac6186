// Package model owns the tables of txmq: their migrations, their GORM models,
// and every change of a state in them, each one conditional SQL statement named
// for its transition. It knows no broker.
//
// Invariants:
//   - No row leaves SUCCESS, and none changes without its status and version
//     in the WHERE.
//   - Leases and due times are decided by the database's clock alone.
//   - Keys are compared byte by byte; one that is too long is an error.
package model
