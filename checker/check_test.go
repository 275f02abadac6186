package checker

import (
	"errors"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

const old = time.Hour

func TestCheckFollowsTheRow(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		c := b.checker(t)

		t.Run("B06 committed row is answered Commit at the first check", func(t *testing.T) {
			a := attempt("committed")
			b.commit(t, a, model.RouteHalf)
			b.want(t, c.Check(t.Context(), b.half(a, 1, 0)), txmq.Commit, ReasonCommitted)
		})
		t.Run("B70 event that went through the outbox is answered Rollback", func(t *testing.T) {
			a := attempt("outbox")
			b.commit(t, a, model.RouteOutbox)
			b.want(t, c.Check(t.Context(), b.half(a, 1, 0)), txmq.Rollback, ReasonRolledBack)
		})
		t.Run("fence of an earlier check is answered Rollback", func(t *testing.T) {
			a := attempt("fenced")
			b.want(t, c.Check(t.Context(), b.half(a, 2, old)), txmq.Rollback, ReasonFenced)
			b.want(t, c.Check(t.Context(), b.half(a, 3, old)), txmq.Rollback, ReasonRolledBack)
		})
		t.Run("row in a state of another version is Unknown", func(t *testing.T) {
			a := attempt("strange")
			b.commit(t, a, "CARRIER_PIGEON")
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Unknown, ReasonBadState)
		})
		t.Run("row of another topic is Unknown", func(t *testing.T) {
			a := attempt("moved")
			b.commit(t, a, model.RouteHalf)
			a.Topic = "elsewhere"
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Unknown, ReasonBadState)
		})
		t.Run("discarded half is known by its real topic", func(t *testing.T) {
			a := attempt("discarded")
			b.commit(t, a, model.RouteHalf)
			m := b.half(a, 15, old)
			m.Topic = "TRANS_CHECK_MAX_TIME_TOPIC"
			m.WithProperty(primitive.PropertyRealTopic, a.Topic)
			b.want(t, c.Check(t.Context(), m), txmq.Commit, ReasonCommitted)
		})
		t.Run("half without attempt goes by event and topic", func(t *testing.T) {
			a := attempt("raw")
			a.ID = ""
			m := b.half(a, 1, 0)
			m.RemoveProperty(txmq.PropertyAttempt)
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonTooYoung)
			a.ID = attemptOfEvent(a.Topic, a.EventID)
			b.commit(t, a, model.RouteHalf)
			b.want(t, c.Check(t.Context(), m), txmq.Commit, ReasonCommitted)
			m.Topic = "other"
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonTooYoung)
		})
	})
}

func TestCheckWithoutRow(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		c := b.checker(t)

		t.Run("B13 missing row is never Commit", func(t *testing.T) {
			for times := range 17 {
				for _, age := range []time.Duration{-old, 0, 59 * time.Second, 61 * time.Second, old, 100 * old} {
					if v := c.Check(t.Context(), b.half(attempt("missing"), times, age)); v == txmq.Commit {
						t.Errorf("Check %d of a half of %v = commit", times, age)
					}
				}
			}
			a := attempt("young")
			b.want(t, c.Check(t.Context(), b.half(a, 2, 30*time.Second)), txmq.Unknown, ReasonTooYoung)
			b.wantNoRow(t, a)
		})
		t.Run("B10 undecided until FenceAfter, decided by the last check", func(t *testing.T) {
			a := attempt("undecided")
			for times := 1; times < DefaultMaxChecks; times++ {
				// The sender's clock is ahead, so its age never counts.
				b.want(t, c.Check(t.Context(), b.half(a, times, -old)), txmq.Unknown, ReasonTooYoung)
			}
			b.wantNoRow(t, a)
			b.want(t, c.Check(t.Context(), b.half(a, DefaultMaxChecks, -old)), txmq.Rollback, ReasonLastCheck)
			e := b.seen.last(t)
			if !e.Fenced || e.EventID != a.EventID || e.Attempt != a.ID || e.Times != DefaultMaxChecks {
				t.Errorf("event = %+v, want the fence of %+v at check %d", e, a, DefaultMaxChecks)
			}
		})
		t.Run("B73 sender's clock is behind", func(t *testing.T) {
			a := attempt("behind")
			b.want(t, c.Check(t.Context(), b.half(a, 1, 10*time.Minute)), txmq.Unknown, ReasonTooYoung)
			b.wantNoRow(t, a)
		})
		t.Run("B73 the number of checks bounds the age", func(t *testing.T) {
			patient := b.checker(t, func(cfg *Config) { cfg.FenceAfter = 3 * time.Minute })
			for times, want := range map[int]string{2: ReasonTooYoung, 5: ReasonTooYoung, 6: ReasonFenced} {
				v := patient.Check(t.Context(), b.half(attempt("bound"), times, 10*time.Minute))
				b.want(t, v, map[string]txmq.Verdict{ReasonFenced: txmq.Rollback}[want], want)
			}
		})
		t.Run("first check decides nothing, however short FenceAfter is", func(t *testing.T) {
			hasty := b.checker(t, func(cfg *Config) { cfg.FenceAfter = time.Second })
			for _, times := range []int{0, 1} {
				b.want(t, hasty.Check(t.Context(), b.half(attempt("hasty"), times, old)), txmq.Unknown, ReasonTooYoung)
			}
			b.want(t, hasty.Check(t.Context(), b.half(attempt("hasty"), 2, old)), txmq.Rollback, ReasonFenced)
		})
		t.Run("age is by the database's clock", func(t *testing.T) {
			a := attempt("clock")
			m := b.half(a, 14, 0)
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonTooYoung)
			b.clock.Add(DefaultFenceAfter + time.Second)
			b.want(t, c.Check(t.Context(), m), txmq.Rollback, ReasonFenced)
		})
		t.Run("fence says who was meant", func(t *testing.T) {
			a := attempt("who")
			b.want(t, c.Check(t.Context(), b.half(a, 2, old)), txmq.Rollback, ReasonFenced)
			e, err := b.row(t, a.ID)
			must(t, err)
			if e.State != model.Fenced || e.EventID != "" || e.FencedEvent != a.EventID || e.ProducerGroup != a.Group || e.Topic != a.Topic {
				t.Errorf("row = %+v, want the fence of %+v", e, a)
			}
		})
	})
}

func TestCheckAgainstRunningTransaction(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		c := b.checker(t)

		t.Run("B03 running transaction is Unknown at once, then Commit", func(t *testing.T) {
			a := attempt("running")
			tx, err := b.logged(t, a, model.RouteHalf)
			must(t, err)
			began := time.Now()
			for times := 1; times <= DefaultMaxChecks; times += 7 {
				want := ReasonLocked
				if times == 1 && !b.sees {
					want = ReasonTooYoung
				}
				b.want(t, c.Check(t.Context(), b.half(a, times, old)), txmq.Unknown, want)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("3 checks took %v, want them not to wait for the transaction", took)
			}
			must(t, tx.Commit(t.Context()))
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Commit, ReasonCommitted)
		})
		t.Run("B04 fenced attempt can't commit any more", func(t *testing.T) {
			a := attempt("slow")
			b.want(t, c.Check(t.Context(), b.half(a, 2, old)), txmq.Rollback, ReasonFenced)
			if _, err := b.logged(t, a, model.RouteHalf); !errors.Is(err, txmq.ErrFenced) {
				t.Errorf("Log = %v, want %v", err, txmq.ErrFenced)
			}
		})
		t.Run("B68 fenced event can be sent again by another attempt", func(t *testing.T) {
			first, second := attempt("again"), attempt("again")
			b.want(t, c.Check(t.Context(), b.half(first, 2, old)), txmq.Rollback, ReasonFenced)
			b.commit(t, second, model.RouteHalf)
			b.want(t, c.Check(t.Context(), b.half(first, 3, old)), txmq.Rollback, ReasonRolledBack)
			b.want(t, c.Check(t.Context(), b.half(second, 1, 0)), txmq.Commit, ReasonCommitted)
		})
		t.Run("B04 commit between look and fence", func(t *testing.T) {
			a := attempt("between")
			h := readHalf(b.half(a, 15, old), "")
			looked := 0
			r := examine(t.Context(), b.store, a, func(s sight) ruling {
				if looked++; looked == 1 {
					b.commit(t, a, model.RouteHalf)
				}
				return c.decide(h, s)
			})
			switch {
			case b.sees && (r.verdict != txmq.Commit || looked != 2):
				t.Errorf("ruling = %+v after %d looks, want commit after the second", r, looked)
			case !b.sees && (r.verdict != txmq.Unknown || r.reason != ReasonLocked): // SQLite's snapshot is too old to write
				t.Errorf("ruling = %+v, want unknown, %q", r, ReasonLocked)
			}
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Commit, ReasonCommitted)
		})
		t.Run("two checks of one half at the same time agree", func(t *testing.T) {
			for range 20 {
				a := attempt("both")
				answers := make(chan txmq.Verdict, 2)
				for range 2 {
					go func() { answers <- c.Check(t.Context(), b.half(a, 5, old)) }()
				}
				x, y := <-answers, <-answers
				if x == txmq.Commit || y == txmq.Commit || x == txmq.Unknown && y == txmq.Unknown {
					t.Errorf("answers = %v, %v, want rollback, from one at least", x, y)
				}
			}
		})
	})
}

func TestCheckIsNotForUs(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		c := b.checker(t)

		t.Run("B78 half of another database is Unknown, and Commit where it is at home", func(t *testing.T) {
			_, elsewhere := open(t, databases[0].dials(t), nil)
			there := b.checker(t, func(cfg *Config) { cfg.Store = elsewhere })
			a := attempt("shared group")
			b.commit(t, a, model.RouteHalf)
			b.want(t, there.Check(t.Context(), b.half(a, 15, old)), txmq.Unknown, ReasonForeignDB)
			b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Commit, ReasonCommitted)
		})
		t.Run("half without database ID is Unknown", func(t *testing.T) {
			m := b.half(attempt("homeless"), 15, old)
			m.RemoveProperty(txmq.PropertyDatabaseID)
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonForeignDB)
		})
		t.Run("half without event ID is Unknown", func(t *testing.T) {
			m := b.half(attempt("nameless"), 15, old)
			m.RemoveProperty(txmq.PropertyEventID)
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonNoID)
		})
		t.Run("keys that no row can have are Unknown", func(t *testing.T) {
			long := string(make([]byte, 300))
			for _, change := range []func(*model.Attempt){
				func(a *model.Attempt) { a.ID = long }, func(a *model.Attempt) { a.EventID = long },
				func(a *model.Attempt) { a.Topic = long }, func(a *model.Attempt) { a.Topic = "" },
			} {
				a := attempt("malformed")
				change(&a)
				b.want(t, c.Check(t.Context(), b.half(a, 15, old)), txmq.Unknown, ReasonMalformed)
			}
		})
		t.Run("half of other code is Unknown, or what Foreign says", func(t *testing.T) {
			bare := func() *primitive.MessageExt {
				m := &primitive.MessageExt{}
				m.Topic = "paid"
				m.WithProperty(primitive.PropertyTranscationCheckTimes, "15")
				return m
			}
			b.want(t, c.Check(t.Context(), bare()), txmq.Unknown, ReasonNotOurs)
			for said, want := range map[txmq.Verdict]txmq.Verdict{
				txmq.Commit: txmq.Commit, txmq.Rollback: txmq.Rollback, txmq.Unknown: txmq.Unknown, 77: txmq.Unknown,
			} {
				asking := b.checker(t, func(cfg *Config) { cfg.Foreign = func(*primitive.MessageExt) txmq.Verdict { return said } })
				b.want(t, asking.Check(t.Context(), bare()), want, ReasonForeign)
				a := attempt("ours")
				b.want(t, asking.Check(t.Context(), b.half(a, 1, 0)), txmq.Unknown, ReasonTooYoung)
			}
		})
	})
}

func TestCheckAfterPurge(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		c := b.checker(t)
		now, err := b.store.Now(t.Context())
		must(t, err)
		must(t, b.store.SetLogPurgedBefore(t.Context(), now.Add(-24*time.Hour)))

		t.Run("B91 half born before the watermark is Unknown and reported", func(t *testing.T) {
			a := attempt("purged")
			b.want(t, c.Check(t.Context(), b.half(a, 15, 25*time.Hour)), txmq.Unknown, ReasonPurged)
			if b.seen.last(t).Err == nil {
				t.Error("event has no error")
			}
			b.wantNoRow(t, a)
		})
		t.Run("B91 the sender's clock was ahead", func(t *testing.T) {
			b.want(t, c.Check(t.Context(), b.half(attempt("ahead"), 15, 24*time.Hour-clockMargin/2)), txmq.Unknown, ReasonPurged)
		})
		t.Run("B91 half without a birth is Unknown", func(t *testing.T) {
			m := b.half(attempt("ageless"), 15, old)
			m.RemoveProperty(txmq.PropertyBorn)
			m.BornTimestamp = 0
			b.want(t, c.Check(t.Context(), m), txmq.Unknown, ReasonPurged)
		})
		t.Run("half born after it is decided", func(t *testing.T) {
			b.want(t, c.Check(t.Context(), b.half(attempt("kept"), 15, 23*time.Hour)), txmq.Rollback, ReasonLastCheck)
		})
		t.Run("row that was kept is answered", func(t *testing.T) {
			a := attempt("row kept")
			b.commit(t, a, model.RouteHalf)
			b.want(t, c.Check(t.Context(), b.half(a, 15, 25*time.Hour)), txmq.Commit, ReasonCommitted)
		})
	})
}
