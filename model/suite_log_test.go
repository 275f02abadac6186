package model

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txmq/txmq"
)

func attempt(id, event string) Attempt {
	return Attempt{ID: id, Topic: "order-paid", EventID: event, Group: "orders"}
}

// log commits the row of an attempt, or gives Log's error.
func (b *bundle) log(t *testing.T, a Attempt) error {
	t.Helper()
	tx := b.begin(t)
	defer tx.Rollback()
	if err := tx.Log(t.Context(), a, RouteHalf); err != nil {
		return err
	}
	return tx.Commit(t.Context())
}

// fence commits a fence, and says whether it was new.
func (b *bundle) fence(t *testing.T, a Attempt) bool {
	t.Helper()
	tx := b.begin(t)
	defer tx.Rollback()
	fresh, err := tx.Fence(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	want(t, tx.Commit(t.Context()))
	return fresh
}

func (b *bundle) look(t *testing.T, id string) (LogEntry, error) {
	t.Helper()
	tx := b.begin(t)
	defer tx.Rollback()
	return tx.Look(t.Context(), id)
}

var logChecks = []check{
	{name: "Log says COMMITTED by its route", run: func(t *testing.T, b *bundle) {
		for _, route := range []string{RouteHalf, RouteOutbox} {
			tx := b.begin(t)
			want(t, tx.Log(t.Context(), attempt("a-"+route, "e-"+route), route))
			want(t, tx.Commit(t.Context()))
			got, err := b.look(t, "a-"+route)
			want(t, err)
			b.wantUntil(t, "created_at", got.CreatedAt, 0)
			wantEntry := LogEntry{Attempt: "a-" + route, Topic: "order-paid", EventID: "e-" + route, State: Committed, Route: route, ProducerGroup: "orders"}
			if diff := cmp.Diff(wantEntry, got, cmpopts.IgnoreFields(LogEntry{}, "ID", "CreatedAt")); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		}
	}},
	{name: "Log that is rolled back leaves no row", run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		want(t, tx.Log(t.Context(), attempt("a", "e"), RouteHalf))
		tx.Rollback()
		_, err := b.look(t, "a")
		wantErr(t, "Look", err, txmq.ErrNotFound)
	}},
	{name: "B04 Log of a fenced attempt is ErrFenced", run: func(t *testing.T, b *bundle) {
		if !b.fence(t, attempt("a", "e")) {
			t.Fatal("Fence = false, want true")
		}
		wantErr(t, "Log", b.log(t, attempt("a", "e")), txmq.ErrFenced)
		e, err := b.look(t, "a")
		want(t, err)
		if e.State != Fenced || e.EventID != "" || e.FencedEvent != "e" {
			t.Errorf("entry = %+v, want FENCED with the event beside", e)
		}
	}},
	{name: "B68 a fenced event can be sent again under another attempt", run: func(t *testing.T, b *bundle) {
		b.fence(t, attempt("a1", "e"))
		want(t, b.log(t, attempt("a2", "e")))
		wantErr(t, "the zombie", b.log(t, attempt("a1", "e")), txmq.ErrFenced)
	}},
	{name: "several attempts of one event can be fenced", run: func(t *testing.T, b *bundle) {
		for _, id := range []string{"a1", "a2", "a3"} {
			if !b.fence(t, attempt(id, "e")) {
				t.Errorf("Fence(%s) = false, want true", id)
			}
		}
	}},
	{name: "Log of an event that has committed is ErrDuplicateEvent", run: func(t *testing.T, b *bundle) {
		want(t, b.log(t, attempt("a1", "e")))
		wantErr(t, "another attempt", b.log(t, attempt("a2", "e")), txmq.ErrDuplicateEvent)
		wantErr(t, "the same attempt", b.log(t, attempt("a1", "e")), txmq.ErrDuplicateEvent)
		_, err := b.look(t, "a2")
		wantErr(t, "Look of the refused attempt", err, txmq.ErrNotFound)
	}},
	{name: "B79 one event on two topics commits twice", run: func(t *testing.T, b *bundle) {
		want(t, b.log(t, attempt("a1", "e")))
		second := attempt("a2", "e")
		second.Topic = "order-shipped"
		want(t, b.log(t, second))
	}},
	{name: "Fence of an attempt that has a row is false", run: func(t *testing.T, b *bundle) {
		want(t, b.log(t, attempt("a", "e")))
		if b.fence(t, attempt("a", "e")) {
			t.Error("Fence on COMMITTED = true, want false")
		}
		b.fence(t, attempt("f", "e"))
		if b.fence(t, attempt("f", "e")) {
			t.Error("Fence on FENCED = true, want false")
		}
		if e, err := b.look(t, "a"); err != nil || e.State != Committed {
			t.Errorf("entry = %+v, %v, want COMMITTED still", e, err)
		}
	}},
	{name: "B03 Look of a row that a running transaction holds is ErrLocked at once", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		want(t, tx.Log(t.Context(), attempt("a", "e"), RouteHalf))
		start := time.Now()
		_, err := b.look(t, "a")
		wantErr(t, "Look", err, ErrLocked)
		if took := time.Since(start); took > short {
			t.Errorf("Look took %v, want at once", took)
		}
		_, err = b.look(t, "b")
		wantErr(t, "Look of another attempt", err, txmq.ErrNotFound)
		want(t, tx.Commit(t.Context()))
		if e, err := b.look(t, "a"); err != nil || e.State != Committed {
			t.Errorf("after the commit: %+v, %v, want COMMITTED", e, err)
		}
	}},
	{name: "Look locks nothing that is not there", needs: rowLocks, run: func(t *testing.T, b *bundle) {
		tx := b.begin(t)
		_, err := tx.Look(t.Context(), "a")
		wantErr(t, "Look", err, txmq.ErrNotFound)
		want(t, b.log(t, attempt("a", "e")))
	}},
	{name: "B03 Fence of an attempt that a running transaction holds is ErrLocked within about a second", needs: two, run: func(t *testing.T, b *bundle) {
		tx, checker := b.begin(t), b.begin(t)
		want(t, tx.Log(t.Context(), attempt("a", "e"), RouteHalf))
		start := time.Now()
		fresh, err := checker.Fence(t.Context(), attempt("a", "e"))
		if took := time.Since(start); fresh || !errors.Is(err, ErrLocked) || took > 4*time.Second {
			t.Errorf("Fence = %v, %v after %v, want ErrLocked", fresh, err, took)
		}
		checker.Rollback()
		want(t, tx.Commit(t.Context()))
		if b.fence(t, attempt("a", "e")) {
			t.Error("Fence after the commit = true, want false")
		}
	}},
	{name: "LogHorizon is now and the purge's watermark", run: func(t *testing.T, b *bundle) {
		exec(t, b.db, "DELETE FROM t_meta WHERE name = ?", metaLogPurgedBefore)
		horizon := func() (time.Time, time.Time) {
			t.Helper()
			tx := b.begin(t)
			defer tx.Rollback()
			now, purged, err := tx.LogHorizon(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now, purged
		}
		now, purged := horizon()
		if !purged.IsZero() {
			t.Errorf("purged before %v, want zero: nothing was purged", purged)
		}
		b.wantUntil(t, "now", Time{now}, 0)
		at := time.Date(2024, 5, 6, 7, 8, 9, 123e6, time.FixedZone("east", 8*3600))
		for _, step := range []struct{ set, want time.Time }{
			{at, at}, {at.Add(-time.Hour), at}, {at, at}, {at.Add(time.Millisecond), at.Add(time.Millisecond)},
		} {
			want(t, b.s.SetLogPurgedBefore(t.Context(), step.set))
			if _, got := horizon(); !got.Equal(step.want) || got.Location() != time.UTC {
				t.Errorf("after SetLogPurgedBefore(%v): %v, want %v: it never moves back", step.set, got, step.want)
			}
		}
		exec(t, b.db, "DELETE FROM t_meta WHERE name = ?", metaLogPurgedBefore)
	}},
}

var jobChecks = []check{
	{name: "TakeJob gives a job that nobody has run", run: func(t *testing.T, b *bundle) {
		j, ok, err := b.s.TakeJob(t.Context(), "sweep", "w1", minute, false)
		if diff := cmp.Diff(JobLease{Name: "sweep", Owner: "w1", Fence: 1}, j); diff != "" || !ok || err != nil {
			t.Errorf("TakeJob = %v, %v (-want +got):\n%s", ok, err, diff)
		}
	}},
	{name: "B63 a job that runs elsewhere is not given, even always", run: func(t *testing.T, b *bundle) {
		b.take(t, "w1", false, true)
		b.take(t, "w2", false, false)
		b.take(t, "w2", true, false)
		b.take(t, "w1", true, false)
	}},
	{name: "B63 a job whose runner's lease is over is taken with a higher fence", run: func(t *testing.T, b *bundle) {
		first := b.take(t, "w1", false, true)
		b.clock.Add(2 * minute)
		second := b.take(t, "w2", false, true)
		if second.Fence <= first.Fence {
			t.Errorf("fence = %d, want above %d", second.Fence, first.Fence)
		}
		wantErr(t, "RenewJob of the first", b.s.RenewJob(t.Context(), first, minute), txmq.ErrLeaseLost)
		wantErr(t, "EndJob of the first", b.s.EndJob(t.Context(), first, minute), txmq.ErrLeaseLost)
		want(t, b.s.RenewJob(t.Context(), second, minute))
	}},
	{name: "EndJob gives the lease back, and the next run is due after next", run: func(t *testing.T, b *bundle) {
		j := b.take(t, "w1", false, true)
		want(t, b.s.EndJob(t.Context(), j, minute))
		wantErr(t, "EndJob again", b.s.EndJob(t.Context(), j, 0), txmq.ErrLeaseLost)
		wantErr(t, "RenewJob afterwards", b.s.RenewJob(t.Context(), j, minute), txmq.ErrLeaseLost)
		b.take(t, "w2", false, false)
		b.clock.Add(minute)
		j2 := b.take(t, "w2", false, true)
		want(t, b.s.EndJob(t.Context(), j2, minute))
		j3 := b.take(t, "w3", true, true) // always: not due, but asked for by hand
		wantErr(t, "EndJob twice", b.s.EndJob(t.Context(), j2, 0), txmq.ErrLeaseLost)
		if j.Fence >= j2.Fence || j2.Fence >= j3.Fence {
			t.Errorf("fences %d, %d, %d, want them to rise", j.Fence, j2.Fence, j3.Fence)
		}
	}},
	{name: "RenewJob keeps the job, also twice in one millisecond", run: func(t *testing.T, b *bundle) {
		j := b.take(t, "w1", false, true)
		b.clock.Add(50 * time.Second)
		for range 10 {
			want(t, b.s.RenewJob(t.Context(), j, minute))
		}
		b.clock.Add(50 * time.Second)
		b.take(t, "w2", false, false)
	}},
	{name: "jobs of other names are apart", run: func(t *testing.T, b *bundle) {
		b.take(t, "w1", false, true)
		_, ok, err := b.s.TakeJob(t.Context(), "Sweep", "w1", minute, false)
		if !ok || err != nil {
			t.Errorf("TakeJob(Sweep) = %v, %v, want true", ok, err)
		}
	}},
}

func (b *bundle) take(t *testing.T, owner string, always, wantIt bool) JobLease {
	t.Helper()
	j, ok, err := b.s.TakeJob(t.Context(), "sweep", owner, minute, always)
	if err != nil || ok != wantIt {
		t.Fatalf("TakeJob(%s, always %v) = %v, %v, want %v", owner, always, ok, err, wantIt)
	}
	return j
}
