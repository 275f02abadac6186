package badinput

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

// jobsConfig is a good one; rows spoil it.
func (w *world) jobsConfig() jobs.Config {
	return jobs.Config{Store: w.store, Broker: w.broker, Compensate: jobs.CompensateConfig{Stale: time.Millisecond}}
}

func TestJobsConfig(t *testing.T) {
	t.Parallel()
	bad := func(name string, spoil func(*jobs.Config), fields ...field) row {
		for i := range fields {
			fields[i].name = "jobs.Config." + fields[i].name
		}
		return row{name: name, fields: fields, call: func(_ *testing.T, w *world) error {
			c := w.jobsConfig()
			spoil(&c)
			_, err := jobs.New(c)
			return err
		}}
	}
	run(t, []row{
		bad("nothing", func(c *jobs.Config) { *c = jobs.Config{} }, field{"Store", "", "model.Open"}),
		bad("durations below zero", func(c *jobs.Config) {
			c.Lease, c.Drain, c.Sweep.Every, c.Sweep.Timeout = -time.Second, -5, -time.Minute, -2
			c.Compensate = jobs.CompensateConfig{Every: -time.Minute, Stale: -time.Second, Deadline: -3}
		},
			field{"Lease", "-1s", "at least 1s"}, field{"Drain", "-5ns", "-1 for none"}, field{"Sweep.Every", "-1m0s", "-1 for never"},
			field{"Sweep.Timeout", "-2ns", "more than 0"}, field{"Compensate.Every", "-1m0s", "-1 for never"},
			field{"Compensate.Stale", "-1s", "more than 0"}, field{"Compensate.Deadline", "-3ns", "more than 0"}),
		bad("durations without a unit", func(c *jobs.Config) { c.Lease, c.Sweep.Every, c.Compensate.Every = 60, 60, 60 },
			field{"Lease", "60ns", "at least 1s"}, field{"Sweep.Every", "60ns", "whole seconds"}, field{"Compensate.Every", "60ns", "whole seconds"}),
		bad("contradictions", func(c *jobs.Config) {
			c.Sweep.Batch, c.Sweep.Max = 100, 10
			c.Compensate = jobs.CompensateConfig{Stale: time.Hour, Longest: time.Minute, Batch: 100, Max: 10, Deadline: time.Hour, Timeout: time.Minute}
		},
			field{"Sweep.Max", "10", "at least Sweep.Batch"}, field{"Compensate.Longest", "1m0s", "at least Compensate.Stale"},
			field{"Compensate.Max", "10", "at least Compensate.Batch"}, field{"Compensate.Deadline", "1h0m0s", "less than Compensate.Timeout (1m0s)"}),
		bad("a Compensator that is nil, and one without a handler", func(c *jobs.Config) {
			c.Compensators = map[string]jobs.Compensator{"shares": nil, "": nil}
		},
			field{`Compensators["shares"]`, "", "a function"}, field{`Compensators[""]`, "", "a function"},
			field{"Compensators key", `""`, "a handler's name"}),
		bad("groups", func(c *jobs.Config) { c.Groups = map[string]string{"shares": "a b"} }, field{`Groups["shares"]`, "a b", "1 to 120 letters"}),
		bad("dead letters without a broker", func(c *jobs.Config) {
			c.Broker, c.DeadLetters = txmq.Broker{}, []jobs.DeadLetter{{Group: "shares"}}
		}, field{"Broker", "", "where the DeadLetters are"}),
		bad("a group of dead letters twice", func(c *jobs.Config) { c.DeadLetters = []jobs.DeadLetter{{Group: "shares"}, {Group: "shares"}} },
			field{"DeadLetters[1].Group", "shares", "each group once"}),
		bad("a handler of dead letters twice", func(c *jobs.Config) {
			c.DeadLetters = []jobs.DeadLetter{{Group: "shares", Handlers: []consumer.Handler{{Topic: "a"}, {Topic: "a"}}}}
		}, field{"DeadLetters[0].Handlers[1].Name", "shares:a", "a name of its own"}),
		bad("half a broker, and several more", func(c *jobs.Config) {
			c.Broker, c.Lease, c.Sweep.Batch = txmq.Broker{SecretKey: secret}, time.Millisecond, 10_001
		},
			field{"Broker.NameServers", "", "ip:port"}, field{"Broker.AccessKey", "", "both keys or neither"},
			field{"Lease", "1ms", "at least 1s"}, field{"Sweep.Batch", "10001", "1 to 10000"}),
		{
			name: "a job that there is not", fields: []field{{"job name", "swep", "one of sweep, compensate"}},
			call: func(t *testing.T, w *world) error {
				j, err := jobs.New(w.jobsConfig())
				must(t, err)
				_, err = j.RunOnce(t.Context(), "swep")
				return err
			},
		},
	})
}

// TestJobsUnreachable: a job's run fails, and its row stays FAIL; the intake,
// which must not end the jobs beside it, says so and tries again.
func TestJobsUnreachable(t *testing.T) {
	t.Parallel()
	failed := model.Arrival{EventID: "pay:1001", PayloadHash: [32]byte{1}}
	prepare := func(t *testing.T, w *world) {
		t.Helper()
		j, err := jobs.New(w.jobsConfig())
		must(t, err)
		_, err = j.RunOnce(t.Context(), "compensate") // its row in t_job_lease
		must(t, err)
		failed.Consumer = "shares:" + w.topic
		failed.At = model.Position{
			Topic: w.topic, BrokerName: "broker-a", MsgID: "7F0000010001", OffsetMsgID: "7F00000100002A9F0000000000000001",
		}
		must(t, w.store.Fail(t.Context(), model.Failure{Arrival: failed, Err: errors.New("down")}))
	}
	once := func(t *testing.T, w *world, nameServers ...string) error {
		t.Helper()
		c := w.jobsConfig()
		c.Broker = txmq.Broker{NameServers: nameServers}
		j, err := jobs.New(c)
		must(t, err)
		due, err := w.store.Due(t.Context(), time.Millisecond, 10)
		for len(due) == 0 && err == nil { // by the database's clock
			due, err = w.store.Due(t.Context(), time.Millisecond, 10)
		}
		must(t, err)
		_, err = j.RunOnce(t.Context(), "compensate")
		r, findErr := w.store.Find(t.Context(), failed.EventID, failed.Consumer)
		must(t, findErr)
		if r.Status != model.Fail || r.RetryCnt != 0 || r.LastError != "down" {
			t.Errorf("record = %+v, want FAIL as it was", r)
		}
		return err
	}
	run(t, []row{
		{
			name: "compensate: nobody listens", is: []error{txmq.ErrBrokerUnreachable},
			says: []string{"job compensate: ", "pay:1001", "name server 127.0.0.1:1, 127.0.0.1:2"},
			call: func(t *testing.T, w *world) error { return once(t, w, "127.0.0.1:1", "127.0.0.1:2") },
		},
		{
			name: "compensate: nobody answers", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"job compensate: ", "name server 127.0.0.1:"},
			within: 6 * time.Second, // 3 s each, and the database's part
			call:   func(t *testing.T, w *world) error { return once(t, w, silent(t)) },
		},
		{
			name: "dead letters: nobody listens", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"name server 127.0.0.1:1, 127.0.0.1:2"},
			call: func(t *testing.T, w *world) error { return w.intake(t, "127.0.0.1:1", "127.0.0.1:2") },
		},
		{
			name: "dead letters: nobody answers", is: []error{txmq.ErrBrokerUnreachable}, says: []string{"name server 127.0.0.1:"},
			within: 4 * time.Second,
			call:   func(t *testing.T, w *world) error { return w.intake(t, silent(t)) },
		},
	}, prepare)
}

// intake runs nothing but the intake until it has logged an error, and returns
// that.
func (w *world) intake(t *testing.T, nameServers ...string) error {
	t.Helper()
	warned := make(warnings, 1)
	c := w.jobsConfig()
	c.Broker, c.Logger = txmq.Broker{NameServers: nameServers}, slog.New(warned)
	c.Sweep.Every, c.Compensate.Every = -1, -1
	c.DeadLetters = []jobs.DeadLetter{{Group: "shares"}}
	j, err := jobs.New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- j.Run(ctx) }()
	err = <-warned
	cancel()
	must(t, <-ended)
	return err
}

// warnings is a slog.Handler that keeps the first error that the intake tells an
// operator.
type warnings chan error

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w warnings) WithGroup(string) slog.Handler                { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && a.Key == "error" {
			select {
			case w <- err:
			default:
			}
		}
		return true
	})
	return nil
}
