package main

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq/bench/dbcount"
	"github.com/txmq/txmq/bench/stub"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMedianOf(t *testing.T) {
	t.Run("limits are the order statistics of the binomial table", func(t *testing.T) {
		// n -> how many values lie outside on each side, at 99 %.
		for n, want := range map[int]int{8: 0, 11: 0, 12: 1, 20: 3, 40: 11} {
			values := make([]float64, n)
			for i := range values {
				values[n-1-i] = float64(i) // not in order
			}
			got := medianOf(values)
			if wanted := (interval{float64(n-1) / 2, float64(want), float64(n - 1 - want)}); got != wanted {
				t.Errorf("medianOf of 0..%d = %v, want %v", n-1, got, wanted)
			}
		}
	})

	t.Run("too few values enclose nothing", func(t *testing.T) {
		got := medianOf([]float64{1, 1, 1, 1, 1, 1, 1})
		if !math.IsInf(got.low, -1) || !math.IsInf(got.high, 1) {
			t.Errorf("medianOf of 7 values = %v, want no limits", got)
		}
	})

	t.Run("values are left as they were", func(t *testing.T) {
		values := []float64{3, 1, 2, 5, 4, 8, 7, 6}
		medianOf(values)
		if values[0] != 3 {
			t.Errorf("values are %v now", values)
		}
	})
}

// rounds gives each side a fixed rate, times what the round's number says.
func rounds(ours, peer, control float64, drift func(round int) float64) *trio {
	n := 0
	at := func(name string, rate float64) side {
		return side{name, func(_ context.Context, m *meter) error {
			m.sample = sample{messages: 1000, took: time.Duration(1000 / (rate * drift(n)) * float64(time.Second))}
			n++
			return nil
		}}
	}
	c := new(dbcount.Counter)
	return &trio{
		ours: at("ours", ours), peer: at("peer", peer), control: at("control", control),
		counters: [3]*dbcount.Counter{c, c, c},
	}
}

func judged(t *testing.T, tr *trio) verdict {
	t.Helper()
	blocks, err := tr.blocks(t.Context(), 12, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return benchmark{measure: ratio}.judge(blocks)
}

func TestBlocks(t *testing.T) {
	steady := func(int) float64 { return 1 }

	t.Run("the ratio is ours over the peer", func(t *testing.T) {
		v := judged(t, rounds(90, 100, 100, steady))
		if math.Abs(v.score.mid-0.9) > 1e-9 || v.control.mid != 1 || !v.valid {
			t.Errorf("judge = %+v, want 0.9, a control of 1, valid", v)
		}
	})

	t.Run("a machine that slows down in a line changes nothing", func(t *testing.T) {
		v := judged(t, rounds(100, 100, 100, func(n int) float64 { return 1 / (1 + float64(n)/100) }))
		if math.Abs(v.score.mid-1) > 1e-9 || !v.valid {
			t.Errorf("judge = %+v, want 1, valid", v)
		}
	})

	t.Run("a control beside its ideal is invalid", func(t *testing.T) {
		if v := judged(t, rounds(100, 100, 103, steady)); v.valid {
			t.Errorf("judge = %+v, want invalid", v)
		}
	})

	t.Run("a control that scatters is invalid", func(t *testing.T) {
		seed := uint32(1)
		v := judged(t, rounds(100, 100, 100, func(int) float64 {
			seed = seed*1664525 + 1013904223
			return 1 + float64(seed>>16)/65536
		}))
		if v.valid || !v.control.holds(1) {
			t.Errorf("judge = %+v, want invalid for its width alone", v)
		}
	})
}

func TestWorse(t *testing.T) {
	low, high := verdict{score: interval{mid: 1}, valid: true}, verdict{score: interval{mid: 2}}
	if v := (benchmark{measure: added}).worse(low, high); v.score.mid != 2 || v.valid {
		t.Errorf("worse of allocations = %+v, want the greater, invalid", v)
	}
	if v := (benchmark{measure: ratio}).worse(high, low); v.score.mid != 1 || v.valid {
		t.Errorf("worse of ratios = %+v, want the less, invalid", v)
	}
	if v := (benchmark{measure: ratio}).worse(low, low); !v.valid {
		t.Errorf("worse of a valid one = %+v, want valid", v)
	}
}

func TestCommand(t *testing.T) {
	names := "send-tx\natomic\ntracked\noverhead\n"
	for _, c := range []struct {
		args      string
		code      int
		out, says string
	}{
		{"-list", 0, names, ""},
		{"-list -only overhead,atomic", 0, "overhead\natomic\n", ""},
		{"-only nothing", 1, "", `no benchmark "nothing"`},
		{"atomic", 1, "", `unknown argument "atomic"`},
		{"-nonsense", 1, "", "not defined"},
		{"-h", 0, "", "NAME ratio low high valid|invalid"},
	} {
		var out, says bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &out, &says); code != c.code || out.String() != c.out || !strings.Contains(says.String(), c.says) {
			t.Errorf("bench %s: code %d, %q, %q; want %d, %q, %q", c.args, code, out.String(), says.String(), c.code, c.out, c.says)
		}
	}
}

var line = regexp.MustCompile(`^overhead -?\d+\.\d{3} -?\d+\.\d{3} -?\d+\.\d{3} valid\n$`)

// TestOverhead runs the whole way with few calls; what needs no service is
// measured here too.
func TestOverhead(t *testing.T) {
	var out, says bytes.Buffer
	r := &runner{stdout: &out, stderr: &says, log: slog.New(slog.DiscardHandler), sizes: options{blocks: 8, calls: 2000}}
	i := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == "overhead" })
	if err := r.one(t.Context(), benchmarks[i]); err != nil {
		t.Fatal(err)
	}
	if !line.MatchString(out.String()) {
		t.Errorf("stdout is %q, want %s", out.String(), line)
	}
	for _, part := range []string{"overhead of a delivery", "overhead of a send", "aim at most 12: PASS"} {
		if !strings.Contains(says.String(), part) {
			t.Errorf("stderr does not have %q:\n%s", part, says.String())
		}
	}
}

func TestCounter(t *testing.T) {
	c := new(dbcount.Counter)
	db := sql.OpenDB(c.Wrap(&stub.Connector{Answers: []stub.Answer{{Part: "SELECT", Row: []driver.Value{int64(1)}}}}))
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var one int
	if err := tx.QueryRow("SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Fatalf("scanned %d: %v", one, err)
	}
	if _, err := tx.Exec("UPDATE"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, want := c.Counts(), (dbcount.Counts{Statements: 2, Commits: 1}); got != want {
		t.Errorf("Counts = %+v, want %+v", got, want)
	}
}

func TestMain(m *testing.M) { testenv.Main(m) }

// TestOnServices runs what has I/O, in one small block each, and looks at what
// does not depend on the machine.
func TestOnServices(t *testing.T) {
	testenv.NameServer(t)
	testenv.MySQL(t)
	sizes := options{blocks: 1, round: 100 * time.Millisecond, messages: 200}
	for _, b := range benchmarks[:3] {
		t.Run(b.name, func(t *testing.T) {
			var out, says bytes.Buffer
			r := &runner{stdout: &out, stderr: &says, log: slog.New(slog.DiscardHandler), sizes: sizes}
			if err := r.one(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if want := regexp.MustCompile(`^` + b.name + ` NaN -Inf \+Inf invalid\n$`); !want.MatchString(out.String()) {
				t.Errorf("stdout is %q, want %s: one block says nothing", out.String(), want)
			}
			peers := regexp.MustCompile(`(?m)^(peer|control) +\d+ +2\.00 +4\.00 +1\.00 `)
			if got := peers.FindAllString(says.String(), -1); len(got) != 2 {
				t.Errorf("not both peers sent 2 statements in 4 round trips with 1 commit:\n%s", says.String())
			}
		})
	}
}
