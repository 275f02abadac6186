//go:build txmq_fault

package producer

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/checker"
	"github.com/txmq/txmq/internal/fault"
	"github.com/txmq/txmq/internal/rocketmq"
)

var sendPoints = []fault.Name{
	fault.SendBeforeHalf, fault.SendAfterHalf, fault.SendAfterLog, fault.SendBeforeCommit, fault.SendAfterCommit,
}

var checkPoints = []fault.Name{fault.CheckBefore, fault.CheckAfterFence, fault.CheckAnswer}

// The points are the process's, so nothing here is parallel: those tests wait
// until this one is over.
func TestFaults(t *testing.T) {
	b := setup(t, onSQLite(t))
	for _, point := range sendPoints {
		for _, action := range []string{"error", "panic"} {
			t.Run(action+" at "+string(point), func(t *testing.T) {
				defer fault.Reset()
				fault.Arm(point, action)
				m := message(string(point)+action, "a")
				panicked, err := sendAndRecover(b, m)
				committed := point == fault.SendAfterCommit
				switch {
				case action == "panic":
					if !panicked {
						t.Error("panic did not reach the caller")
					}
				case committed:
					wantError(t, err, nil)
				default:
					wantError(t, err, fault.ErrInjected)
				}
				if got := b.broker.visible(m.EventID); len(got) != 0 {
					t.Errorf("visible before the check = %v, want nothing", got)
				}
				b.settle(t)
				if committed {
					b.want(t, m.EventID, one("a"), one("a"))
				} else {
					b.want(t, m.EventID, none, none)
				}
			})
		}
	}
	t.Run("no commit, no point after it", func(t *testing.T) {
		defer fault.Reset()
		fault.Arm(fault.SendAfterCommit, "error")
		r, err := b.p.SendInTransaction(t.Context(), message("no commit", "a"), func(*gorm.DB) error { return errBusiness })
		wantError(t, err, errBusiness)
		wantReceipt(t, r, txmq.Rollback, true)
	})
	for _, point := range checkPoints {
		for _, action := range []string{"error", "panic"} {
			for _, commits := range []bool{true, false} {
				if action == "panic" && point == fault.CheckAnswer || commits && point == fault.CheckAfterFence {
					continue // outside the guard, so a crash; no fence
				}
				t.Run(action+" at "+string(point), func(t *testing.T) {
					defer fault.Reset()
					m := message(string(point)+action, "a")
					end, lost := txmq.Rollback, faults{lostAnswer: true}
					if commits {
						m.EventID += " committed"
						end, lost = txmq.Commit, faults{lostEnd: true}
					}
					b.broker.fail(lost)
					_, _ = b.send(t, m)
					if !commits { // the first check decides nothing
						b.clock.Add(time.Minute)
						b.broker.check(t.Context())
						b.clock.Add(time.Minute)
					}
					fault.Arm(point, action)
					for _, want := range []txmq.Verdict{txmq.Unknown, end} {
						if got := b.broker.check(t.Context()); !slices.Equal(got, []txmq.Verdict{want}) {
							t.Errorf("answer = %v, want %v", got, want)
						}
					}
					if commits {
						b.want(t, m.EventID, one("a"), one("a"))
					} else {
						b.want(t, m.EventID, none, none)
					}
				})
			}
		}
	}
}

func sendAndRecover(b *bundle, m txmq.Message) (panicked bool, err error) {
	defer func() { panicked = recover() != nil }()
	_, err = b.p.SendInTransaction(context.Background(), m, apply(m))
	return false, err
}

// A child process dies by SIGKILL at each point; what it leaves is a database
// file and the halves that its broker had stored. Another process checks.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("TXMQ_TEST_CHILD"); dir != "" {
		child(t, dir)
		return
	}
	t.Parallel()
	for _, point := range slices.Concat(sendPoints, checkPoints) {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
			cmd.Env = append(os.Environ(), "TXMQ_TEST_CHILD="+dir, fault.Environment+"="+string(point)+"=kill")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("child = %v, want it killed\n%s", err, out)
			}
			b := setup(t, sqlite.Open(dsn(dir)))
			text, err := os.ReadFile(filepath.Join(dir, "halves"))
			if err != nil && point != fault.SendBeforeHalf {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				var h stored
				must(t, json.Unmarshal([]byte(line), &h))
				b.broker.halves = append(b.broker.halves, &halfMessage{m: h.M, props: h.Props, born: h.Born})
			}
			b.settle(t)
			switch {
			case point == fault.SendAfterCommit:
				b.want(t, "killed", one("a"), one("a"))
			default:
				b.want(t, "killed", none, none)
			}
		})
	}
}

type stored struct {
	M     txmq.Message
	Props map[string]string
	Born  time.Time
}

func dsn(dir string) string {
	return "file:" + filepath.Join(dir, "txmq.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)"
}

// onDisk writes each half down before anything else happens.
type onDisk struct {
	*broker
	dir string
}

func (o onDisk) SendHalf(ctx context.Context, m txmq.Message, props map[string]string,
	local func(rocketmq.Half) txmq.Verdict,
) (rocketmq.HalfResult, error) {
	line, err := json.Marshal(stored{m, props, time.Now()})
	if err == nil {
		err = os.WriteFile(filepath.Join(o.dir, "halves"), line, 0o600)
	}
	if err != nil {
		return rocketmq.HalfResult{}, err
	}
	return o.broker.SendHalf(ctx, m, props, local)
}

// child sends, or checks a half of a call that never began.
func child(t *testing.T, dir string) {
	b := setup(t, sqlite.Open(dsn(dir)))
	sim := b.broker
	p, err := newProducer(b.p.cfg, func(c rocketmq.TxConfig) (halves, error) { return onDisk{sim, dir}, nil })
	must(t, err)
	if strings.Contains(os.Getenv(fault.Environment), "fault:check/") {
		sim.fail(faults{lostAnswer: true})
	}
	m := message("killed", "a")
	_, _ = p.SendInTransaction(t.Context(), m, apply(m))
	for times := range 3 {
		b.clock.Add(checker.DefaultFenceAfter)
		for _, h := range sim.open() {
			h.times = times
			_ = p.check.Check(t.Context(), h.asked())
		}
	}
}
