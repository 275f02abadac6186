package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/test/e2e/protocol"
)

// inBothModes are the points that an Atomic and a Tracked handler pass alike;
// ConsumeAfterClaim is Tracked's alone, all others are run with Atomic.
var inBothModes = map[fault.Name]bool{
	fault.ConsumeReceived: true, fault.ConsumeAfterHandler: true, fault.ConsumeAfterCommit: true,
	fault.ConsumeBeforeFail: true, fault.ConsumeAfterFail: true,
}

func modesOf(p fault.Name) []string {
	switch {
	case inBothModes[p]:
		return []string{"atomic", "tracked"}
	case p == fault.ConsumeAfterClaim:
		return []string{"tracked"}
	default:
		return []string{"atomic"}
	}
}

// outcomeRow is one run of the table.
type outcomeRow struct {
	point             fault.Name
	mode, action      string
	hit               bool
	processes         int
	deliveries, check int
	took              time.Duration
	tally             tally
	verdict           string
}

// TestFaultPoints runs the same story once for each fault point, action and
// mode: a service sends, rolls back, loses end-transactions, is checked, fences,
// fails and retries a handler, and sweeps, and one of these steps ends it, or
// panics, or meets an error. After a kill another process does what is left.
// Then nothing is lost, double or phantom.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	rows := map[string]outcomeRow{}
	order := []string{}
	t.Run("runs", func(t *testing.T) {
		for _, point := range fault.All() {
			for _, mode := range modesOf(point) {
				for _, action := range []string{"kill", "panic", "error"} {
					name := fmt.Sprintf("%s %s %s", point, mode, action)
					order = append(order, name)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						row := outcomeRow{point: point, mode: mode, action: action, verdict: "FAILED"}
						defer func() {
							mu.Lock()
							defer mu.Unlock()
							rows[name] = row
						}()
						tell(t, &row)
					})
				}
			}
		}
	})
	printTable(t, order, rows)
}

func printTable(t *testing.T, order []string, rows map[string]outcomeRow) {
	t.Helper()
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "point\tmode\taction\thit\tprocesses\tchecks\tdeliveries\tcommitted\teffects\tlost\tdouble\tphantom\ttook\toutcome")
	for _, name := range order {
		r, ok := rows[name]
		if !ok {
			continue // not chosen by -run
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1fs\t%s\n", r.point, r.mode, r.action, r.hit, r.processes,
			r.check, r.deliveries, r.tally.committed, r.tally.effects, r.tally.lost, r.tally.double, r.tally.phantom,
			r.took.Seconds(), r.verdict)
	}
	must(t, tw.Flush())
	t.Logf("fault points\n%s", b.String())
}

// The story's events. Each of those in committed has one effect in the end.
var (
	committed = []string{"lost-end", "orphan", "plain", "retried"}

	story = []protocol.Command{
		{Do: protocol.DoOrphan, Event: "orphan", Body: "{}"},
		{Do: protocol.DoSend, Event: "fenced", Body: "{}", Fail: true, LoseEnd: true, Tries: 5},
		{Do: protocol.DoSend, Event: "lost-end", Body: "{}", LoseEnd: true, Tries: 5},
		{Do: protocol.DoSend, Event: "plain", Body: "{}", Tries: 5},
		{Do: protocol.DoSend, Event: "refused", Body: "{}", Fail: true, Tries: 5},
		{Do: protocol.DoSend, Event: "retried", Body: `{"Fail":1}`, Tries: 5},
		{Do: protocol.DoSend, Event: "orphan", Body: "{}", Tries: 5},
	}
)

// tell runs the story.
func tell(t *testing.T, row *outcomeRow) {
	w := newWorld(t)
	began := time.Now()
	setup := w.setup(func(s *protocol.Setup) {
		s.Tracked, s.Jobs, s.Proxy = row.mode == "tracked", true, true
		s.Lease, s.Deadline = 4*time.Second, 3900*time.Millisecond
	})
	c := w.spawn(t, setup, at(row.point, row.action))
	c.do(t, story...)
	children := []*child{c}
	if row.action == "kill" {
		c.killedAt(t, row.point)
		row.hit = true
		c = w.spawn(t, setup)
		c.do(t, story...)
		children = append(children, c)
	}
	row.processes = len(children)

	w.until(t, "the story settled", func() (bool, string) {
		if c.ended() {
			t.Fatalf("the last worker ended with %v:\n%s", c.cmd.ProcessState, tail(c.log.String(), 4000))
		}
		row.tally = w.tally(t)
		open := w.dangling(t, children)
		done := row.tally.committed == len(committed) && row.tally.effects >= len(committed) && row.tally.open == 0
		return done && len(open) == 0 && len(c.all(line(protocol.Sent, ""))) == len(story),
			fmt.Sprintf("%v; halves without an answer: %v", row.tally, open)
	})
	last := c.stop(t)
	row.took = time.Since(began)
	if row.action != "kill" {
		row.hit = last.Hits[string(row.point)] > 0
	}
	if !row.hit {
		t.Error("the point was never hit")
	}
	for _, c := range children {
		row.deliveries += len(c.all(line("Delivered", "")))
		row.check += len(c.all(line("Checked", "")))
	}
	row.tally = w.tally(t)
	w.settled(t, committed...)
	if n := w.number(t, "SELECT COUNT(*) FROM t_tx_log WHERE state = 'FENCED' AND fenced_event = 'fenced'"); n == 0 {
		t.Error("the half whose rollback was lost is not fenced")
	}
	if !t.Failed() {
		row.verdict = "ok"
	}
}

// dangling are the attempts whose broker was told nothing by the send, and of
// which the log says nothing yet.
func (w *world) dangling(t *testing.T, children []*child) (open []string) {
	t.Helper()
	logged := map[string]bool{}
	for _, a := range w.strings(t, "SELECT attempt FROM t_tx_log") {
		logged[a] = true
	}
	for _, c := range children {
		for _, half := range c.all(line("HalfSent", "")) {
			ended := c.all(line("SendEnded", "", func(l protocol.Line) bool { return l.Attempt == half.Attempt }))
			if (ended == nil || half.Event == "fenced") && !logged[half.Attempt] {
				open = append(open, half.Event+":"+half.Attempt)
			}
		}
	}
	return open
}
