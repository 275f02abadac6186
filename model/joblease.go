package model

import (
	"context"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// JobLease is the right to run one job now, among all replicas.
type JobLease struct {
	Name  string
	Owner string
	Fence int64 // rises with each change of hands
}

// TakeJob gives the lease of a job whose last run is due again (unless always)
// and that nobody runs, or whose runner's lease is over. false: not now.
func (s *Store) TakeJob(ctx context.Context, name, owner string, lease time.Duration, always bool) (JobLease, bool, error) {
	if err := checkKeys([2]string{"job name", name}, [2]string{"owner", owner}); err != nil {
		return JobLease{}, false, wrapOp("job", name, err)
	}
	fresh, err := s.insertAlone(ctx, `INSERT INTO {prefix}job_lease (name, owner, version, lease_until, due_at)
		VALUES (?, ?, 1, {now+?}, {now})`, []any{name, owner, micros(lease)})
	if err != nil {
		return JobLease{}, false, wrapOp("job", name, err)
	}
	if fresh {
		return JobLease{Name: name, Owner: owner, Fence: 1}, true, nil
	}
	var fence int64
	if err := s.pool.QueryRowContext(ctx, s.q("SELECT version FROM {prefix}job_lease WHERE name = ?"), name).Scan(&fence); err != nil {
		return JobLease{}, false, wrapOp("job", name, err)
	}
	n, err := s.changeAlone(ctx, `UPDATE {prefix}job_lease SET owner = ?, version = version + 1, lease_until = {now+?}
		WHERE name = ? AND version = ? AND lease_until <= {now} AND (due_at <= {now} OR ?)`,
		owner, micros(lease), name, fence, always)
	return JobLease{Name: name, Owner: owner, Fence: fence + 1}, n == 1, wrapOp("job", name, err)
}

// RenewJob moves the lease's end; txmq.ErrLeaseLost when another has taken it.
func (s *Store) RenewJob(ctx context.Context, j JobLease, lease time.Duration) error {
	err := s.changeJob(ctx, j, "lease_until = {now+?}", micros(lease))
	if !errors.Is(err, txmq.ErrLeaseLost) {
		return err
	}
	// Two renewals in one millisecond change nothing: see Extend.
	var fence int64
	var owner string
	scanErr := s.pool.QueryRowContext(ctx, s.q("SELECT version, owner FROM {prefix}job_lease WHERE name = ?"), j.Name).
		Scan(&fence, &owner)
	if scanErr == nil && fence == j.Fence && owner == j.Owner {
		return nil
	}
	return err
}

// EndJob gives the lease back and says when the next run is due.
func (s *Store) EndJob(ctx context.Context, j JobLease, next time.Duration) error {
	return s.changeJob(ctx, j, "version = version + 1, lease_until = {now}, due_at = {now+?}", micros(next))
}

func (s *Store) changeJob(ctx context.Context, j JobLease, set string, arg int64) error {
	n, err := s.changeAlone(ctx, "UPDATE {prefix}job_lease SET "+set+" WHERE name = ? AND owner = ? AND version = ?",
		arg, j.Name, j.Owner, j.Fence)
	if err == nil && n != 1 {
		err = txmq.ErrLeaseLost
	}
	return wrapOp("job", j.Name, err)
}
