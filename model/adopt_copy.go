package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txmq/txmq"
)

// keepForeign renames the table, unless an earlier run has.
func (s *Store) keepForeign(ctx context.Context, a Adoption) error {
	if a.Begun {
		return nil
	}
	err := s.foreignSession(ctx, a.t.cfg.wait, func(c *sql.Conn) error {
		_, err := c.ExecContext(ctx, renameSQL(a))
		return err
	})
	if s.d.lockWait(err) {
		return &txmq.SchemaError{Table: a.Table, Problem: "is in use by an open transaction", Hint: "stop the consumers that use it, and run it again"}
	}
	return err
}

func renameSQL(a Adoption) string { return "RENAME TABLE " + quoted(a.Table) + " TO " + quoted(a.Kept) }

// copyForeign copies what is not there yet, a chunk a transaction, in the order
// of the primary key.
func (s *Store) copyForeign(ctx context.Context, a Adoption) error {
	return s.foreignSession(ctx, a.t.cfg.wait, func(c *sql.Conn) error {
		after := any(nil)
		for {
			upTo, more, err := a.t.bound(ctx, c, a.Kept, after)
			if err != nil || !more {
				return err
			}
			text, args := s.copySQL(a)
			where := a.t.by() + " <= ?"
			bounds := []any{upTo}
			if after != nil {
				where, bounds = a.t.by()+" > ? AND "+where, []any{after, upTo}
			}
			_, err = c.ExecContext(ctx, s.q(strings.Replace(text, "{chunk}", where, 1)), append(args, bounds...)...)
			if err != nil {
				return err
			}
			after = upTo
		}
	})
}

// by is what the copy goes by.
func (t *foreign) by() string { return "t." + quoted(t.key) }

// bound is where the next chunk ends.
func (t *foreign) bound(ctx context.Context, c conn, kept string, after any) (upTo any, more bool, err error) {
	k, where, args := t.by(), "", []any{}
	if after != nil {
		where, args = " WHERE "+k+" > ?", append(args, after)
	}
	query := "SELECT MAX(k) FROM (SELECT " + k + " AS k FROM " + quoted(kept) + " t" + where + " ORDER BY " + k + " LIMIT " + strconv.Itoa(t.cfg.Chunk) + ") chunk"
	if col, _ := t.column(t.key); slices.Contains(wholeNumbers, col.kind) {
		var n sql.NullInt64
		err = c.QueryRowContext(ctx, query, args...).Scan(&n)
		return n.Int64, n.Valid, err
	}
	var text sql.NullString
	err = c.QueryRowContext(ctx, query, args...).Scan(&text)
	return text.String, text.Valid, err
}

// copySQL inserts what a chunk of theirs has and ours has not; {chunk} stands for
// which. By their primary key and uk_event_consumer; it locks their rows
// against changes, which nobody makes any more.
//
// Neither FAIL nor what was PROCESSING gets a next_retry_at: a job could not
// deliver it, since nothing says where the message lies. Their count of retries
// is not ours: with it an event could be DEAD before it has run once.
func (s *Store) copySQL(a Adoption) (string, []any) {
	event, consumer := a.t.keys()
	becomes, args := a.becomes()
	lastError, olds := a.lastError()
	retries := "0"
	if c, ok := a.t.column("retry_cnt"); ok && slices.Contains(wholeNumbers, c.kind) {
		retries = "LEAST(GREATEST(COALESCE(t.retry_cnt, 0), 0), 2147483647)"
	}
	columns := [][2]string{
		{"event_id", event},
		{"consumer", consumer},
		{"status", becomes},
		{"retry_cnt", "CASE WHEN " + becomes + " = 'FAIL' THEN 0 ELSE " + retries + " END"},
		{"version", "1"},
		{"last_error", lastError},
		{"payload_hash", unknownHash},
		{"topic", "''"},
		{"broker_name", "''"},
		{"queue_id", "0"},
		{"queue_offset", "0"},
		{"msg_id", "''"},
		{"offset_msg_id", "''"},
		{"created_at", a.t.at("created_at", "{now}")},
		{"updated_at", a.t.updatedAt("{now}")},
	}
	var names, values []string
	for _, c := range columns {
		names, values = append(names, c[0]), append(values, c[1])
	}
	return "INSERT INTO {prefix}msg_consume (" + strings.Join(names, ", ") + ")\nSELECT " + strings.Join(values, ", ") +
		"\nFROM " + quoted(a.Kept) + " t WHERE {chunk} AND NOT EXISTS (SELECT 1 FROM {prefix}msg_consume o WHERE o.event_id = " +
		event + " AND o.consumer = " + consumer + ")\nORDER BY " + a.t.by(), slices.Concat(args, args, olds)
}

// becomes is the new state as an expression.
func (a Adoption) becomes() (string, []any) {
	var b strings.Builder
	var args []any
	b.WriteString("CASE " + a.t.state())
	for _, st := range a.States {
		b.WriteString(" WHEN ? THEN '" + string(st.Becomes) + "'")
		args = append(args, st.Old)
	}
	b.WriteString(" END")
	return b.String(), args
}

// lastError is theirs, cut to our width; of what was PROCESSING it says so.
func (a Adoption) lastError() (string, []any) {
	text := "''"
	if c, ok := a.t.column("last_error"); ok && (c.charset != "" || strings.HasSuffix(c.kind, "blob") || c.kind == "varbinary") {
		text = "LEFT(COALESCE(CONVERT(t.last_error USING utf8mb4), ''), " + strconv.Itoa(MaxErrorRunes) + ")"
	}
	var olds []any
	for _, st := range a.States {
		if st.Means == Processing {
			olds = append(olds, st.Old)
		}
	}
	if olds == nil {
		return text, nil
	}
	return "CASE WHEN " + a.t.state() + " IN (?" + strings.Repeat(", ?", len(olds)-1) + ") THEN 'adopted from " + a.Kept +
		", where it was under way: whether it was done is not known' ELSE " + text + " END", olds
}

// verifyCopy: each row of theirs is in ours, and those that nobody has worked on
// since are in the state that they were to have.
func (s *Store) verifyCopy(ctx context.Context, a Adoption) error {
	event, consumer := a.t.keys()
	becomes, args := a.becomes()
	var all, missing, wrong int64
	err := s.foreignSession(ctx, a.t.cfg.wait, func(c *sql.Conn) error {
		return c.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(o.id IS NULL), 0), COALESCE(SUM(o.version = 1 AND o.payload_hash = "+unknownHash+
			" AND o.status <> "+becomes+"), 0) FROM "+quoted(a.Kept)+" t LEFT JOIN "+a.Ours+" o ON o.event_id = "+event+" AND o.consumer = "+consumer,
			args...).Scan(&all, &missing, &wrong)
	})
	if err == nil && (all != a.Rows || missing+wrong > 0) {
		err = fmt.Errorf("%w: %s has %d rows where %d were counted before; %d are not in %s, %d in another state",
			errCopyDiffers, a.Kept, all, a.Rows, missing, a.Ours, wrong)
	}
	return err
}

var errCopyDiffers = errors.New("the copy is not the table")

// adoptSQL is what Adopt runs, to be read.
func (s *Store) adoptSQL(a *Adoption) []string {
	text, args := s.copySQL(*a)
	text = s.q(strings.Replace(text, "{chunk}", a.t.by()+" > LAST AND "+a.t.by()+" <= NEXT", 1))
	for _, arg := range args {
		text = strings.Replace(text, "?", "'"+strings.ReplaceAll(arg.(string), "'", "''")+"'", 1)
	}
	run := []string{renameSQL(*a), "-- what `txmq migrate print` prints, but for the last line", text}
	if a.Begun {
		run = run[1:]
	}
	return run
}
