package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/jobs"
	"github.com/txmq/txmq/model"
)

// manual is what the commands share by which a person changes records.
type manual struct {
	output
	Event    string `arg:"" optional:"" help:"The event ID. Put -- before one that starts with a dash."`
	Consumer string `once:"" placeholder:"NAME" help:"Only of this handler."`
	AllDead  bool   `once:"" help:"Instead of one event: the DEAD records of --consumer, oldest first."`
	Limit    int    `once:"" default:"100" help:"With --all-dead: at most so many, 1 to 1000."`
	Reason   string `once:"" required:"" placeholder:"TEXT" help:"Why; kept in t_audit. Required."`
	Actor    string `placeholder:"NAME" help:"Who; kept in t_audit. Default: the user and the host."`
	DryRun   bool   `once:"" help:"Say what would be done, and do nothing."`
}

// changed is a line of the answer.
type changed struct {
	Event    string `json:"event_id"`
	Consumer string `json:"consumer"`
	Before   string `json:"state_before"`
	After    string `json:"state_after"` // as before where nothing was done
	Note     string `json:"note"`
}

func (c *manual) check() error {
	switch {
	case (c.Event == "") == !c.AllDead:
		return usage("see `txmq records --help`", "want either an event ID or --all-dead")
	case c.AllDead && c.Consumer == "":
		return usage("`txmq records list --status DEAD` shows whose there are", "--all-dead needs --consumer")
	case c.Limit < 1 || c.Limit > 1000:
		return usage("want 1 to 1000; run it again for more", "--limit is %d", c.Limit)
	}
	return c.by().Check()
}

func (c *manual) by() model.By { return model.By{Actor: cmp.Or(c.Actor, whoAmI()), Reason: c.Reason} }

// whoAmI is user@host, as far as the system tells.
func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// chosen reads the records that are meant, DEAD or FAIL; none is an error. Of
// --all-dead those are left out that can't be changed: they would be the first
// ones for ever.
func (c *manual) chosen(ctx context.Context, a *app, s *model.Store, can func(model.ConsumeRecord) error) ([]model.ConsumeRecord, error) {
	if c.AllDead {
		return c.dead(ctx, a, s, can)
	}
	all, err := s.Records(ctx, model.Filter{EventID: c.Event, Consumer: c.Consumer, Limit: 1000})
	if err != nil {
		return nil, err
	}
	var records []model.ConsumeRecord
	for _, r := range all {
		if r.Status == model.Dead || r.Status == model.Fail {
			records = append(records, r)
		}
	}
	switch {
	case len(records) > 0:
		return records, nil
	case len(all) > 0:
		return nil, failed(fmt.Errorf("no record of event ID %q is DEAD or FAIL; the first is %s", c.Event, all[0].Status),
			"only those can be changed by hand; PROCESSING is its worker's until its lease is over")
	default:
		return nil, failed(fmt.Errorf("no record has event ID %q", c.Event),
			"IDs are compared byte by byte; `txmq records list` shows what there is")
	}
}

// dead pages through the DEAD records until Limit of them can be changed, and
// says how many can't.
func (c *manual) dead(ctx context.Context, a *app, s *model.Store, can func(model.ConsumeRecord) error) ([]model.ConsumeRecord, error) {
	var records []model.ConsumeRecord
	left := 0
	for f := (model.Filter{Status: model.Dead, Consumer: c.Consumer, Limit: 1000}); ; {
		page, err := s.Records(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			switch {
			case len(records) == c.Limit:
			case can(r) != nil:
				left++
			default:
				records = append(records, r)
			}
		}
		if len(page) < f.Limit || len(records) == c.Limit {
			break
		}
		f.After = page[len(page)-1].ID
	}
	switch {
	case len(records) == 0 && left > 0:
		return nil, failed(fmt.Errorf("none of the %d DEAD records of %q can be retried", left, c.Consumer),
			"`txmq records retry <event>` says why of one; `txmq records resolve` settles it")
	case len(records) == 0:
		return nil, failed(fmt.Errorf("no record of %q is DEAD", c.Consumer), "`txmq records list` shows what there is")
	case left > 0:
		_, err := fmt.Fprintf(a.stderr, "left out, since they can't be retried: %d\n", left)
		return records, err
	}
	return records, nil
}

// deed is what a command does to each record that is meant.
type deed struct {
	after model.Status
	can   func(model.ConsumeRecord) error // why it is not done to a record, also in a dry run
	do    func(*model.Store, model.ConsumeRecord) (note string, err error)
}

// run does it, and tells what became of each. One that can't be done does not
// keep the others from it.
func (c *manual) run(ctx context.Context, a *app, d deed) error {
	if err := c.check(); err != nil {
		return err
	}
	s, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	records, err := c.chosen(ctx, a, s, d.can)
	if err != nil {
		return err
	}
	var lines []changed
	var errs []error
	for _, r := range records {
		note, err := c.one(s, r, d)
		line := changed{Event: r.EventID, Consumer: r.Consumer, Before: string(r.Status), After: string(d.after), Note: note}
		if err != nil {
			line.After, line.Note = line.Before, "not done"
			errs = append(errs, err)
		}
		lines = append(lines, line)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(c.tell(a, lines), refusals(errs))
}

func (c *manual) one(s *model.Store, r model.ConsumeRecord, d deed) (note string, err error) {
	if err := d.can(r); err != nil {
		return "", err
	}
	if c.DryRun {
		return "not done: --dry-run", nil
	}
	return d.do(s, r)
}

func (c *manual) tell(a *app, lines []changed) error {
	rows := make([][]string, 0, len(lines))
	for _, l := range lines {
		rows = append(rows, []string{l.Event, l.Consumer, l.Before, l.After, l.Note})
	}
	return c.write(a.stdout, lines, []string{"EVENT", "CONSUMER", "BEFORE", "AFTER", "NOTE"}, rows)
}

// refusals is one error with the way out of the first.
func refusals(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	hint := ""
	switch first := errs[0]; {
	case errors.Is(first, txmq.ErrLeaseLost):
		hint = "it has changed meanwhile: look at it with `txmq records show`, and decide anew"
	case errors.Is(first, txmq.ErrMissingID):
		hint = "`txmq records resolve` once its producer has published it again"
	case errors.Is(first, errNowhere):
		hint = "have it published again, or settle it with `txmq records resolve`; a service with a Compensator calls model.Store.Retry itself"
	default:
		return errors.Join(errs...)
	}
	return failed(errors.Join(errs...), hint)
}

// errNowhere is of a record that was adopted from another's table.
var errNowhere = errors.New("the record does not say where its message lies, so nothing can deliver it")

// retriable is nil, or why no retry would have the record run.
func retriable(r model.ConsumeRecord) error {
	var why error
	switch {
	case r.Nameless():
		why = fmt.Errorf("%w of its own that can be run", txmq.ErrMissingID)
	case r.Position.Topic == "":
		why = errNowhere
	default:
		return nil
	}
	return &txmq.OpError{Op: "retry", EventID: r.EventID, Err: why}
}

type recordsRetry struct {
	manual
	ways
}

// Run makes the records due again, with one more attempt, and has the broker
// deliver their messages at once where one is named.
func (c *recordsRetry) Run(ctx context.Context, a *app) error {
	b, err := a.broker(false)
	if err != nil {
		return err
	}
	return c.run(ctx, a, deed{model.Fail, retriable, func(s *model.Store, r model.ConsumeRecord) (string, error) {
		if err := s.Retry(ctx, r, c.by()); err != nil {
			return "", err
		}
		if len(b.NameServers) == 0 {
			return "due at once: the compensate job delivers it", nil
		}
		return c.redrive(ctx, jobs.Config{Store: s, Broker: b, Groups: c.Groups}, r), nil
	}})
}

// redrive says what became of the delivery. The record is due whatever did, so a
// failure here is the job's to mend.
func (c *recordsRetry) redrive(ctx context.Context, cfg jobs.Config, r model.ConsumeRecord) string {
	runner, err := jobs.New(cfg)
	way := txmq.RedriveWay("")
	if err == nil {
		way, err = runner.Redrive(ctx, r.EventID, r.Consumer)
	}
	switch {
	case err != nil:
		return "due at once, but not delivered: " + inFlags(err.Error())
	case way == "":
		return "a job was quicker to deliver it"
	default:
		return "delivered again: " + string(way)
	}
}

type recordsResolve struct{ manual }

// Run marks the records as settled by hand.
func (c *recordsResolve) Run(ctx context.Context, a *app) error {
	all := func(model.ConsumeRecord) error { return nil }
	return c.run(ctx, a, deed{model.Success, all, func(s *model.Store, r model.ConsumeRecord) (string, error) {
		return "nothing runs for it any more", s.Resolve(ctx, r, c.by())
	}})
}

type auditCommand struct {
	output
	Event string `once:"" placeholder:"ID" help:"Only of this event."`
	After int64  `once:"" placeholder:"ID" help:"Only ids above this one, to page on."`
	Limit int    `once:"" default:"100" help:"At most so many, 1 to 1000."`
}

// Run lists what was done by hand.
func (c *auditCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return usage("want 1 to 1000; page on with --after", "--limit is %d", c.Limit)
	}
	s, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	entries, err := s.Audit(ctx, c.Event, c.After, c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(entries))
	for _, e := range entries {
		rows = append(rows, []string{
			fmt.Sprint(e.ID), at(e.CreatedAt), e.Actor, e.Action, e.EventID, e.Consumer, string(e.StateBefore), string(e.StateAfter),
			fmt.Sprint(e.RetryCnt), fmt.Sprint(e.Version), short(e.Reason, 60),
		})
	}
	if entries == nil {
		entries = []model.AuditEntry{}
	}
	header := []string{"ID", "AT", "ACTOR", "ACTION", "EVENT", "CONSUMER", "BEFORE", "AFTER", "RETRIES", "VERSION", "REASON"}
	return c.write(a.stdout, entries, header, rows)
}
