package model

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/txmq/txmq"
)

// extendWait bounds how long one renewal waits for a row that a transaction
// holds, so that it holds up the others' little.
const extendWait = time.Second

// Heart is one connection kept for renewing leases, so that a heartbeat never
// waits for the handlers' connections. Not safe for concurrent use.
type Heart struct {
	s      *Store
	c      *sql.Conn // nil while there is none
	shared bool      // the pool has one connection only
}

// Heart reserves a connection, or gives one that shares the pool where the pool
// has a single connection only. Close gives it back.
func (s *Store) Heart(ctx context.Context) (*Heart, error) {
	h := &Heart{s: s, shared: s.MaxOpenConns() == 1}
	if err := h.reserve(ctx); err != nil {
		return nil, wrapOp("heartbeat", "", err)
	}
	return h, nil
}

// reserve takes a connection where there is none.
func (h *Heart) reserve(ctx context.Context) (err error) {
	if h.c == nil && !h.shared {
		h.c, err = h.s.pool.Conn(ctx)
	}
	return err
}

// Close returns the connection to the pool.
func (h *Heart) Close() error {
	if h.c == nil {
		return nil
	}
	c := h.c
	h.c = nil
	return c.Close()
}

// Extend moves the lease's end to lease from now by the database's clock. A row
// that has another owner or version, or has ended, gives txmq.ErrLeaseLost. A
// connection that has died is replaced, once; where none is to be had, the next
// call tries again.
func (h *Heart) Extend(ctx context.Context, held Held, lease time.Duration) error {
	err := h.tryExtend(ctx, held, lease)
	if h.c == nil && !h.shared && ctx.Err() == nil {
		err = h.tryExtend(ctx, held, lease)
	}
	return wrapOp("heartbeat", held.EventID, err)
}

func (h *Heart) tryExtend(ctx context.Context, held Held, lease time.Duration) error {
	if err := h.reserve(ctx); err != nil {
		return err
	}
	err := h.extend(ctx, h.conn(), held, lease)
	if h.c != nil && h.s.d.breaks(err) && !h.s.d.lockWait(err) {
		_ = h.Close() // dead, or its session is in an unknown state
	}
	return err
}

func (h *Heart) conn() conn {
	if h.c == nil {
		return h.s.pool
	}
	return h.c
}

func (h *Heart) extend(ctx context.Context, c conn, held Held, lease time.Duration) error {
	var n int64
	err := h.s.d.waiting(ctx, c, extendWait, func(prefix string) (err error) {
		n, err = h.s.changePrefixed(ctx, c, prefix, `UPDATE {prefix}msg_consume SET lease_until = {now+?}, updated_at = {now}`+whereHeld,
			micros(lease), held.EventID, held.Consumer, held.Owner, held.Version)
		return err
	})
	if err != nil || n == 1 {
		return err
	}
	// Two renewals in one millisecond change nothing, and then a server that
	// counts changed rows says 0.
	r, err := h.s.find(ctx, c, held.EventID, held.Consumer)
	switch {
	case errors.Is(err, txmq.ErrNotFound):
		return txmq.ErrLeaseLost
	case err != nil:
		return err
	case r.Status == Processing && r.Owner == held.Owner && r.Version == held.Version:
		return nil
	default:
		return txmq.ErrLeaseLost
	}
}
