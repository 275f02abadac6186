package model

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/dbclock"
)

// world is §4's arrows in memory: what the store has to agree with.
type world struct {
	status  Status
	version int64
	retries int
	owner   string
	lease   time.Duration // the end of the lease, on the world's clock
	due     time.Duration // next_retry_at of FAIL
	redrove bool
	now     time.Duration
}

const longAgo = -1000 * time.Hour

// take is Apply (to SUCCESS) and Claim (to PROCESSING).
func (w *world) take(to Status, owner string) Decision {
	switch {
	case w.status == Success:
		return Duplicate
	case w.status == Dead:
		return Buried
	case w.status == Processing && w.lease > w.now:
		return InProgress
	case w.status != "":
		w.retries++
	}
	w.status, w.version, w.owner, w.lease = to, w.version+1, owner, w.now+minute
	return Run
}

func (w *world) holds(h Held) bool {
	return w.status == Processing && w.owner == h.Owner && w.version == h.Version
}

// end is Succeed, Fail and Sweep.
func (w *world) end(to Status) {
	if to != Success {
		w.version++
	}
	w.status, w.owner, w.due = to, "", w.now
}

// fails is what Fail asks for: the holder's row, or what a rolled-back Apply saw.
func (w *world) fails(h Held) bool {
	if h.Owner != "" {
		return w.holds(h)
	}
	return h.Version == w.version && (w.status == "" || w.status == Fail || w.status == Processing && w.lease <= w.now)
}

// TestStoreFollowsTheArrows runs random commands of two workers against the
// store and the world.
func TestStoreFollowsTheArrows(t *testing.T) {
	t.Parallel()
	for _, h := range []harness{harnesses()[0], harnesses()[3]} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			followsTheArrows(t, h)
		})
	}
}

func followsTheArrows(t *testing.T, h harness) {
	db := h.open(t)
	if _, err := Migrate(t.Context(), db, Config{}); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		clock := &dbclock.Offset{}
		s, err := Open(t.Context(), db, Config{Clock: clock})
		if err != nil {
			rt.Fatal(err)
		}
		exec(t, db, "DELETE FROM t_msg_consume")
		b := &bundle{harness: h, db: db, s: s, clock: clock}
		w := &world{}
		held := map[string]Held{} // what each worker believes to hold
		seen := Held{EventID: "e", Consumer: handler}
		seenRetries := 0
		owners := rapid.SampledFrom([]string{"w1", "w2"})

		decided := func(what string, c Claimed, err error, want Decision, before world) {
			if err != nil || c.Decision != want {
				rt.Fatalf("%s = %v, %v, want %v", what, c.Decision, err, want)
			}
			if want == Run && (c.Seen != before.status || c.RetryCnt != w.retries || c.TookOver != (before.status == Processing) ||
				c.Lost != (before.owner != "") ||
				c.Redriven != before.redrove) {
				rt.Fatalf("%s = %+v, want what was seen of %+v", what, c, before)
			}
		}
		agrees := func(what string, ok bool, err error) {
			if ok && err != nil || !ok && !errors.Is(err, txmq.ErrLeaseLost) {
				rt.Fatalf("%s = %v, want allowed %v", what, err, ok)
			}
		}
		apply := func(rt *rapid.T, commit bool) {
			tx := b.begin(rt)
			defer tx.Rollback()
			before := *w
			c, err := tx.Apply(t.Context(), arrival("e"), short)
			decision := w.take(Success, "")
			decided("Apply", c, err, decision, before)
			if decision == Run && c.Version != before.version {
				rt.Fatalf("Apply saw version %d, want %d", c.Version, before.version)
			}
			if !commit || decision != Run {
				*w = before
				if decision == Run {
					seen.Version, seenRetries = c.Version, c.RetryCnt
				}
				return
			}
			if err := tx.Commit(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		fail := func(h Held, retries int, dead bool) {
			ok := w.fails(h)
			err := s.Fail(t.Context(), Failure{Arrival: arrival("e"), Owner: h.Owner, Version: h.Version, RetryCnt: retries, Dead: dead, RetryIn: minute, Err: errNoStock})
			agrees(fmt.Sprintf("Fail by %+v", h), ok, err)
			if ok {
				w.end(map[bool]Status{true: Dead, false: Fail}[dead])
				w.retries, w.due = retries, w.now+minute
			}
		}
		heart := b.heart(t)
		var version int64
		var status Status
		rt.Repeat(map[string]func(*rapid.T){
			"apply strictly": func(rt *rapid.T) {
				tx := b.begin(rt)
				defer tx.Rollback()
				before := *w
				c, h, err := tx.ApplyStrict(t.Context(), arrival("e"), "w3", minute, short)
				decision := w.take(Success, "")
				decided("ApplyStrict", c, err, decision, before)
				if decision != Run {
					*w = before
					return
				}
				if c.Version != before.version || h.Version != w.version {
					rt.Fatalf("ApplyStrict saw version %d and holds %d, want %d and %d", c.Version, h.Version, before.version, w.version)
				}
				if rapid.Bool().Draw(rt, "work fails") {
					*w = before
					seen.Version, seenRetries = c.Version, c.RetryCnt
					return
				}
				if err := errors.Join(tx.Succeed(t.Context(), h), tx.Commit(t.Context())); err != nil {
					rt.Fatal(err)
				}
			},
			"apply and commit":    func(rt *rapid.T) { apply(rt, true) },
			"apply and roll back": func(rt *rapid.T) { apply(rt, false) },
			"fail the apply":      func(rt *rapid.T) { fail(seen, seenRetries, rapid.Bool().Draw(rt, "dead")) },
			"claim": func(rt *rapid.T) {
				owner, before := owners.Draw(rt, "owner"), *w
				c, err := s.Claim(t.Context(), arrival("e"), owner, minute, short)
				decision := w.take(Processing, owner)
				decided("Claim", c, err, decision, before)
				if decision == Run {
					held[owner] = Held{EventID: "e", Consumer: handler, Owner: owner, Version: c.Version}
				}
			},
			"extend": func(rt *rapid.T) {
				if h, ok := held[owners.Draw(rt, "owner")]; ok {
					agrees("Extend", w.holds(h), heart.Extend(t.Context(), h, minute))
					if w.holds(h) {
						w.lease = w.now + minute
					}
				}
			},
			"succeed": func(rt *rapid.T) {
				if h, ok := held[owners.Draw(rt, "owner")]; ok {
					holds := w.holds(h)
					agrees("Succeed", holds, b.succeed(rt, h))
					if holds {
						w.end(Success)
					}
				}
			},
			"fail": func(rt *rapid.T) {
				if h, ok := held[owners.Draw(rt, "owner")]; ok {
					fail(h, w.retries, rapid.IntRange(0, 4).Draw(rt, "dead") == 0)
				}
			},
			"release": func(rt *rapid.T) {
				if h, ok := held[owners.Draw(rt, "owner")]; ok {
					holds := w.holds(h)
					agrees("Release", holds, s.Release(t.Context(), h, errNoStock))
					if holds {
						w.end(Fail)
						w.retries--
					}
				}
			},
			"retry or resolve": func(rt *rapid.T) {
				r, err := s.Find(t.Context(), "e", handler)
				if err != nil {
					return
				}
				ok, to := w.status == Fail || w.status == Dead, Fail
				if rapid.Bool().Draw(rt, "retry") {
					err = s.Retry(t.Context(), r, by)
				} else {
					err, to = s.Resolve(t.Context(), r, by), Success
				}
				agrees("By hand", ok, err)
				if ok {
					w.end(Fail) // version+1
					w.status, w.due = to, longAgo
					if to == Fail && w.retries > 0 {
						w.retries--
					}
				}
			},
			"redrive": func(rt *rapid.T) {
				rows, err := s.Due(t.Context(), minute, 10)
				due := w.status == Fail && w.due+minute <= w.now
				if err != nil || (len(rows) == 1) != due {
					rt.Fatalf("Due = %d rows, %v, want due %v", len(rows), err, due)
				}
				if !due {
					return
				}
				first, err1 := s.Redrive(t.Context(), rows[0], minute, 3*minute)
				again, err2 := s.Redrive(t.Context(), rows[0], minute, 3*minute)
				if !first || again || err1 != nil || err2 != nil {
					rt.Fatalf("Redrive = %v, %v, then %v, %v, want once", first, err1, again, err2)
				}
				w.due, w.redrove = w.now+3*minute, true
			},
			"sweep": func(*rapid.T) {
				rows, err := s.Sweep(t.Context(), 10)
				due := w.status == Processing && w.lease <= w.now
				if err != nil || (len(rows) == 1) != due {
					rt.Fatalf("Sweep = %d rows, %v, want due %v", len(rows), err, due)
				}
				if due {
					lost := w.owner
					w.end(Fail)
					w.owner = lost
				}
			},
			"time passes": func(rt *rapid.T) {
				// Never near a lease's end: the database's own clock runs too.
				d := rapid.SampledFrom([]time.Duration{10 * time.Second, 2 * minute}).Draw(rt, "by")
				clock.Add(d)
				w.now += d
			},
			"": func(rt *rapid.T) {
				r, err := s.Find(t.Context(), "e", handler)
				if errors.Is(err, txmq.ErrNotFound) && w.status == "" {
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				if err := r.is(w.status, w.version, w.retries, w.owner); err != nil {
					rt.Fatal(err)
				}
				if r.Redriven() != w.redrove {
					rt.Fatalf("Redriven = %v, want %v", r.Redriven(), w.redrove)
				}
				if r.LeaseOver() != (w.status == Processing && w.lease <= w.now) {
					rt.Fatalf("LeaseOver = %v, rest %v, want lease %v at %v", r.LeaseOver(), r.Rest, w.lease, w.now)
				}
				if r.Version < version || status == Success && r.Status != Success {
					rt.Fatalf("record went from %s v%d to %s v%d", status, version, r.Status, r.Version)
				}
				version, status = r.Version, r.Status
			},
		})
	})
}
