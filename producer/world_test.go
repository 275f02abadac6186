package producer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gorm.io/gorm"
	"pgregory.net/rapid"
)

// TestVisibleIffCommitted walks through the small world of docs/design.md: one
// or two calls of one event, duplicate halves, check-backs at any moment, calls
// that stall, fail, panic or die, lost requests. Whatever happens, each attempt
// that committed is visible, no other is, and at most one has.
func TestVisibleIffCommitted(t *testing.T) {
	each(t, testWorlds)
}

func testWorlds(t *testing.T, b *bundle) {
	worlds := 0
	rapid.Check(t, func(rt *rapid.T) {
		worlds++
		w := &world{rt: rt, b: b, event: fmt.Sprintf("world:%d", worlds), calls: rapid.IntRange(1, 2).Draw(rt, "calls")}
		for w.calls > 0 {
			w.call()
		}
		b.settle(rt)
		committed := b.effects(rt, w.event)
		if len(committed) > 1 || b.logged(rt, w.event) != int64(len(committed)) {
			rt.Fatalf("committed %v with %d log rows, want one of each at most", committed, b.logged(rt, w.event))
		}
		visible := b.broker.visible(w.event)
		slices.Sort(visible)
		if got := slices.Compact(visible); !slices.Equal(got, committed) {
			rt.Fatalf("visible %v, committed %v", got, committed)
		}
		if !slices.Equal(w.succeeded, committed) {
			rt.Fatalf("committed %v, calls that said so %v", committed, w.succeeded)
		}
	})
}

type world struct {
	rt        *rapid.T
	b         *bundle
	event     string
	calls     int // still to be made
	depth     int
	waits     bool     // another call would, for ever
	succeeded []string // bodies of the calls that returned nil
}

// turn lets something else happen: checks, time, another call.
func (w *world) turn(moment string) {
	for range rapid.IntRange(0, 3).Draw(w.rt, "checks "+moment) {
		w.b.clock.Add(time.Duration(rapid.IntRange(0, 70).Draw(w.rt, "seconds")) * time.Second)
		w.b.broker.check(w.rt.Context())
	}
	if w.depth == 1 && w.calls > 0 && !w.waits && rapid.Bool().Draw(w.rt, "other call "+moment) {
		w.call()
	}
}

func (w *world) call() {
	w.calls--
	w.depth++
	defer func() { w.depth-- }()
	body := fmt.Sprintf("call %d", w.calls)
	f := faults{
		copies:     rapid.IntRange(0, 2).Draw(w.rt, "copies"),
		lostAnswer: rapid.IntRange(0, 5).Draw(w.rt, "answer") == 0,
		notDurable: rapid.IntRange(0, 8).Draw(w.rt, "durable") == 0,
		lostEnd:    rapid.Bool().Draw(w.rt, "end is lost"),
		before:     func() { w.turn("before the transaction") },
		after:      func() { w.turn("before the end") },
	}
	ends := rapid.SampledFrom([]string{"nil", "nil", "nil", "error", "panic"}).Draw(w.rt, "function")
	w.b.broker.fail(f)
	m := message(w.event, body)
	defer func() {
		if cause := recover(); cause != nil && cause != any("local function") {
			panic(cause)
		}
	}()
	_, err := w.b.p.SendInTransaction(w.rt.Context(), m, func(tx *gorm.DB) error {
		if err := apply(m)(tx); err != nil {
			return err
		}
		w.waits = w.b.db.Name() == "mysql" // for the open transaction, which waits for it
		w.turn("in the transaction")
		w.waits = false
		switch ends {
		case "error":
			return errBusiness
		case "panic":
			panic("local function")
		default:
			return nil
		}
	})
	if err == nil {
		w.succeeded = append(w.succeeded, body)
	}
	w.turn("after the call")
}
