package model

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txmq/txmq"
)

// Names in t_meta.
const (
	metaDatabaseID = "database_id"
	// metaLogPurgedBefore holds the time before which the transaction log may
	// lack rows, as written by the purge.
	metaLogPurgedBefore = "tx_log_purged_before"
)

// meta reads one value by primary key, "" when absent.
func (s *Store) meta(ctx context.Context, name string) (string, error) {
	var v string
	err := s.pool.QueryRowContext(ctx, s.q("SELECT value FROM {prefix}meta WHERE name = ?"), name).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, wrapOp("meta", "", err)
}

// putMetaOnce writes a value unless there is one.
func (s *Store) putMetaOnce(ctx context.Context, name, value string) error {
	_, err := s.insertAlone(ctx, "INSERT INTO {prefix}meta (name, value, updated_at) VALUES (?, ?, {now})", []any{name, value})
	return wrapOp("meta", "", err)
}

// checkSchema tells a schema that is missing, older or newer than this code.
// Newer ones are taken: a step only adds what an older program can leave out
// (ADR 012), and programs are replaced one by one after `migrate up`.
func (s *Store) checkSchema(ctx context.Context) error {
	have, err := s.version(ctx)
	if err != nil {
		return err
	}
	want := latest(s.d)
	switch {
	case have == 0:
		return &txmq.SchemaError{Problem: "there are no txmq tables with prefix " + s.prefix, Hint: "run `txmq migrate up`"}
	case have < want:
		return &txmq.SchemaError{Problem: "the tables are older than this program", Hint: "run `txmq migrate up`"}
	default:
		return nil
	}
}
