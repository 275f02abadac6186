// Package jobs runs what keeps txmq's tables healthy beside the consumers. The
// sweep puts rows whose worker died back to FAIL; compensate has FAIL rows run
// again that nobody redelivers, by a copy of the message to the one group or by
// the service's own Compensator; and the dead-letter intake gives each message
// that somebody gave up its DEAD row.
//
// Any number of replicas may run the same jobs on one database. Each tick is
// one replica's: a row in t_job_lease, with a fencing number and the time when
// the next run is due, decides by the database's clock. Schedules are "every so
// often", so no time zone or daylight saving shifts, doubles or skips a run.
//
// Invariants:
//   - A job never overlaps itself, neither in a process nor among replicas, and
//     a panic costs one run.
//   - A run that can no longer be sure of its lease is cancelled; each row is
//     changed by compare-and-set all the same.
//   - Run returns with no job running and no goroutine left.
package jobs
