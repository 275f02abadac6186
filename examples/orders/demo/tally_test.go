package demo

import (
	"strings"
	"testing"
)

// good is a run that nothing is wrong with.
func good() (Tally, Faults, Books) {
	return Tally{Committed: 200, RolledBack: 20, Delivered: 200, Effects: 200},
		Faults{Kills: 1, Dropped: 1, Repeats: 1, Sweeps: 1, Takeovers: 1},
		Books{Logged: 200, Shares: 6000, Balance: 6000, PerOrder: 30}
}

func TestLines(t *testing.T) {
	t.Parallel()
	tally, _, _ := good()
	tally.Lost, tally.Double, tally.Phantom = 1, 2, 3
	want := "committed=200 rolled_back=20 delivered=200 effects=200 lost=1 double=2 phantom=3"
	if got := tally.String(); got != want {
		t.Errorf("Tally = %q, want %q", got, want)
	}
	faults := Faults{Kills: 1, Dropped: 2, Repeats: 3, Sweeps: 4, Takeovers: 5}
	want = "kills=1 dropped=2 repeats=3 sweeps=4 takeovers=5"
	if got := faults.String(); got != want {
		t.Errorf("Faults = %q, want %q", got, want)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Tally, *Faults, *Books)
		want   string // "": nothing is wrong
	}{
		{"good", func(*Tally, *Faults, *Books) {}, ""},
		{"lost", func(c *Tally, _ *Faults, _ *Books) { c.Lost = 1 }, "(lost)"},
		{"double", func(c *Tally, _ *Faults, _ *Books) { c.Double = 1 }, "(double)"},
		{"phantom", func(c *Tally, _ *Faults, _ *Books) { c.Phantom = 1 }, "(phantom)"},
		{"too few committed", func(c *Tally, _ *Faults, b *Books) {
			c.Committed, c.Delivered, b.Logged, b.Shares, b.Balance = 199, 199, 199, 5970, 5970
		}, "only 199 orders committed"},
		{"none rolled back", func(c *Tally, _ *Faults, _ *Books) { c.RolledBack = 0 }, "rolled back"},
		{"not delivered", func(c *Tally, _ *Faults, _ *Books) { c.Delivered = 199 }, "199 events were delivered"},
		{"delivered too much", func(c *Tally, _ *Faults, _ *Books) { c.Delivered = 201 }, "201 events were delivered"},
		{"log disagrees", func(_ *Tally, _ *Faults, b *Books) { b.Logged = 201 }, "transaction log has 201"},
		{"orders left", func(_ *Tally, _ *Faults, b *Books) { b.Waiting = 1 }, "still NEW"},
		{"orders stuck", func(_ *Tally, _ *Faults, b *Books) { b.Stuck = 1 }, "stuck in PAID"},
		{"records open", func(_ *Tally, _ *Faults, b *Books) { b.Open = 1 }, "not SUCCESS"},
		{"shares too high", func(_ *Tally, _ *Faults, b *Books) { b.Shares = 6030 }, "money does not add up"},
		{"balance too low", func(_ *Tally, _ *Faults, b *Books) { b.Balance = 5970 }, "money does not add up"},
		{"both wrong alike", func(_ *Tally, _ *Faults, b *Books) { b.Shares, b.Balance = 6030, 6030 }, "money does not add up"},
		{"no kills", func(_ *Tally, f *Faults, _ *Books) { f.Kills = 0 }, "nothing was killed"},
		{"no drops", func(_ *Tally, f *Faults, _ *Books) { f.Dropped = 0 }, "no end-transaction"},
		{"no repeats", func(_ *Tally, f *Faults, _ *Books) { f.Repeats = 0 }, "delivered again"},
		{"no sweeps", func(_ *Tally, f *Faults, _ *Books) { f.Sweeps = 0 }, "swept"},
		{"no takeovers", func(_ *Tally, f *Faults, _ *Books) { f.Takeovers = 0 }, "taken over"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tally, faults, books := good()
			tt.change(&tally, &faults, &books)
			wrong := Verdict(tally, faults, books, 200)
			switch {
			case tt.want == "" && len(wrong) > 0:
				t.Errorf("Verdict = %q, want nothing", wrong)
			case tt.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], tt.want)):
				t.Errorf("Verdict = %q, want one that says %q", wrong, tt.want)
			}
		})
	}
}
