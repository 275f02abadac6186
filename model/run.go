package model

import (
	"context"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// runKept is how long a row of t_run that nobody has seen to its end tells of a
// crash; older ones are deleted when a run of the group starts.
const runKept = 24 * time.Hour

// BeginRun notes that a consumer process of group runs, under a name of its own.
func (s *Store) BeginRun(ctx context.Context, id, group string) error {
	if err := checkKeys([2]string{"run", id}, [2]string{"group", group}); err != nil {
		return wrapOp("run", "", err)
	}
	if _, err := s.insertAlone(ctx, `INSERT INTO {prefix}run (id, consumer_group, started_at, seen_at, stopped_at)
		VALUES (?, ?, {now}, {now}, NULL)`, []any{id, group}); err != nil {
		return wrapOp("run", "", err)
	}
	// By idx_group; a group has as many rows as processes a day.
	_, err := s.changeAlone(ctx, "DELETE FROM {prefix}run WHERE consumer_group = ? AND seen_at <= {now+?}", group, -micros(runKept))
	return wrapOp("run", "", err)
}

// SeeRun says that the run still lives.
func (s *Store) SeeRun(ctx context.Context, id string) error {
	_, err := s.changeAlone(ctx, "UPDATE {prefix}run SET seen_at = {now} WHERE id = ?", id)
	return wrapOp("run", "", err)
}

// EndRun notes a clean stop: no delivery of the run was left under way.
func (s *Store) EndRun(ctx context.Context, id string) error {
	n, err := s.changeAlone(ctx, "UPDATE {prefix}run SET stopped_at = {now} WHERE id = ? AND stopped_at IS NULL", id)
	if err == nil && n != 1 {
		err = txmq.ErrNotFound
	}
	return wrapOp("run", "", err)
}

// OpenRun is a run without its end: it lives, or its process died.
type OpenRun struct {
	ID     string
	Silent time.Duration // since it was last seen, by the database's clock
}

// OpenRuns lists the runs of group without their end, seen within the last
// within, but self. It walks idx_group and takes no lock.
func (s *Store) OpenRuns(ctx context.Context, group, self string, within time.Duration) (list []OpenRun, err error) {
	rows, err := s.pool.QueryContext(ctx, s.q(`SELECT id, {silent} FROM {prefix}run
		WHERE consumer_group = ? AND seen_at > {now+?} AND stopped_at IS NULL AND id <> ?`), group, -micros(within), self)
	if err != nil {
		return nil, wrapOp("run", "", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r OpenRun
		var us int64
		if err := rows.Scan(&r.ID, &us); err != nil {
			return nil, wrapOp("run", "", err)
		}
		r.Silent = time.Duration(us) * time.Microsecond
		list = append(list, r)
	}
	return list, wrapOp("run", "", rows.Err())
}
