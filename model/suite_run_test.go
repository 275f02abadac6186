package model

import (
	"testing"
	"time"

	"github.com/txmq/txmq"
)

func (b *bundle) openRuns(t *testing.T, group, self string) map[string]time.Duration {
	t.Helper()
	runs, err := b.s.OpenRuns(t.Context(), group, self, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	silent := map[string]time.Duration{}
	for _, r := range runs {
		silent[r.ID] = r.Silent
	}
	return silent
}

var runChecks = []check{
	{name: "OpenRuns are the group's others without their end", run: func(t *testing.T, b *bundle) {
		for _, id := range []string{"lives", "died", "stopped", "self"} {
			want(t, b.s.BeginRun(t.Context(), id, "g"))
		}
		want(t, b.s.BeginRun(t.Context(), "other group's", "h"))
		want(t, b.s.EndRun(t.Context(), "stopped"))
		b.clock.Add(minute)
		want(t, b.s.SeeRun(t.Context(), "lives"))
		runs := b.openRuns(t, "g", "self")
		if len(runs) != 2 || runs["lives"].Abs() > 30*time.Second || (runs["died"]-minute).Abs() > 30*time.Second {
			t.Errorf("OpenRuns = %v, want lives about 0s and died about 1m silent", runs)
		}
		b.clock.Add(2 * time.Hour)
		if runs := b.openRuns(t, "g", "self"); len(runs) != 0 {
			t.Errorf("OpenRuns within an hour = %v, want none", runs)
		}
	}},
	{name: "a run ends once, and old ones go when another begins", run: func(t *testing.T, b *bundle) {
		want(t, b.s.BeginRun(t.Context(), "r", "g"))
		want(t, b.s.EndRun(t.Context(), "r"))
		wantErr(t, "a second EndRun", b.s.EndRun(t.Context(), "r"), txmq.ErrNotFound)
		want(t, b.s.BeginRun(t.Context(), "of another group", "h"))
		b.clock.Add(25 * time.Hour)
		want(t, b.s.BeginRun(t.Context(), "new", "g"))
		if n := b.count(t, "SELECT COUNT(*) FROM t_run"); n != 2 {
			t.Errorf("%d runs, want the new one and the other group's", n)
		}
	}},
}
