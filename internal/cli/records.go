package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

type recordsCommands struct {
	List recordsList `cmd:"" help:"List records by id, oldest first."`
	Show recordsShow `cmd:"" help:"Show all that is known of an event, without its body."`

	Retry   recordsRetry   `cmd:"" help:"Have DEAD or FAIL records run again, with one more attempt."`
	Resolve recordsResolve `cmd:"" help:"Mark DEAD or FAIL records as settled in another way: SUCCESS, and nothing runs."`
}

type recordsList struct {
	output
	Status   string        `once:"" placeholder:"STATUS" help:"PROCESSING, SUCCESS, FAIL or DEAD."`
	Consumer string        `once:"" placeholder:"NAME" help:"Of this handler: GROUP:TOPIC, or the name it was given."`
	Event    string        `once:"" placeholder:"ID" help:"Of this event."`
	Older    time.Duration `once:"" placeholder:"DURATION" help:"Not changed for at least so long, by the database's clock: 90s, 24h."`
	After    int64         `once:"" placeholder:"ID" help:"Only ids above this one, to page on."`
	Limit    int           `once:"" default:"100" help:"At most so many, 1 to 1000."`
}

func (c *recordsList) filter() (model.Filter, error) {
	status := model.Status(strings.ToUpper(c.Status))
	known := []model.Status{"", model.Processing, model.Success, model.Fail, model.Dead}
	switch {
	case !slices.Contains(known, status):
		return model.Filter{}, usage("the states are PROCESSING, SUCCESS, FAIL and DEAD", "unknown --status %q", c.Status)
	case c.Limit < 1 || c.Limit > 1000:
		return model.Filter{}, usage("want 1 to 1000; page on with --after", "--limit is %d", c.Limit)
	case c.Older < 0:
		return model.Filter{}, usage("give a duration such as 24h", "--older is %v", c.Older)
	case c.After < 0:
		return model.Filter{}, usage("give the last id that was listed", "--after is %d", c.After)
	}
	return model.Filter{
		Status: status, Consumer: c.Consumer, EventID: c.Event,
		Older: c.Older, After: c.After, Limit: c.Limit,
	}, nil
}

// Run lists the records.
func (c *recordsList) Run(ctx context.Context, a *app) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	s, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	records, err := s.Records(ctx, f)
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(records))
	for _, r := range records {
		rows = append(rows, []string{
			fmt.Sprint(r.ID), r.EventID, r.Consumer, string(r.Status), fmt.Sprint(r.RetryCnt),
			at(r.UpdatedAt), short(r.LastError, 60),
		})
	}
	if records == nil {
		records = []model.ConsumeRecord{}
	}
	header := []string{"ID", "EVENT", "CONSUMER", "STATUS", "RETRIES", "UPDATED", "ERROR"}
	if err := c.write(a.stdout, records, header, rows); err != nil {
		return err
	}
	switch len(records) {
	case 0:
		_, err = fmt.Fprintln(a.stderr, "no record matches")
	case f.Limit:
		_, err = fmt.Fprintf(a.stderr, "there may be more: --after %d\n", records[f.Limit-1].ID)
	}
	return err
}

type recordsShow struct {
	output
	Event    string `arg:"" help:"The event ID. Put -- before one that starts with a dash."`
	Consumer string `once:"" placeholder:"NAME" help:"Only of this handler."`
}

// Run shows the records of one event.
func (c *recordsShow) Run(ctx context.Context, a *app) error {
	s, closeDB, err := a.store(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	records, err := c.find(ctx, s)
	if errors.Is(err, txmq.ErrNotFound) {
		of := ""
		if c.Consumer != "" {
			of = fmt.Sprintf(" of %q", c.Consumer)
		}
		return failed(fmt.Errorf("no record%s has event ID %q", of, c.Event),
			"IDs are compared byte by byte; `txmq records list` shows what there is")
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(a.stdout, records)
	}
	for i, r := range records {
		if i > 0 {
			_, _ = fmt.Fprintln(a.stdout)
		}
		if err := c.table(a, r); err != nil {
			return err
		}
	}
	return nil
}

func (c *recordsShow) find(ctx context.Context, s *model.Store) ([]model.ConsumeRecord, error) {
	if c.Consumer != "" {
		r, err := s.Find(ctx, c.Event, c.Consumer)
		return []model.ConsumeRecord{r}, err
	}
	records, err := s.Records(ctx, model.Filter{EventID: c.Event, Limit: 1000})
	if err == nil && len(records) == 0 {
		err = txmq.ErrNotFound
	}
	return records, err
}

// table is one record, a field a line. last_error keeps its lines.
func (c *recordsShow) table(a *app, r model.ConsumeRecord) error {
	p := r.Position
	lease := at(r.LeaseUntil)
	switch {
	case r.LeaseOver():
		lease += " (over by " + seconds(-r.Rest) + ")"
	case r.Rest > 0:
		lease += " (" + seconds(r.Rest) + " left)"
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range [][2]string{
		{"event", r.EventID},
		{"consumer", r.Consumer},
		{"status", string(r.Status)},
		{"id", fmt.Sprint(r.ID)},
		{"retries", fmt.Sprint(r.RetryCnt)},
		{"version", fmt.Sprint(r.Version)},
		{"owner", r.Owner},
		{"lease until", lease},
		{"next retry at", at(r.NextRetryAt)},
		{"created at", at(r.CreatedAt)},
		{"updated at", at(r.UpdatedAt)},
		{"redriven at", at(r.RedrivenAt)},
		{"topic", p.Topic},
		{"broker", p.BrokerName},
		{"queue", fmt.Sprintf("%d at offset %d", p.QueueID, p.QueueOffset)},
		{"message id", p.MsgID},
		{"offset message id", p.OffsetMsgID},
	} {
		if _, err := fmt.Fprintf(t, "%s:\t%s\n", f[0], printable(f[1])); err != nil {
			return err
		}
	}
	for line := range strings.SplitSeq(r.LastError, "\n") {
		if _, err := fmt.Fprintf(t, "error:\t%s\n", printable(line)); err != nil {
			return err
		}
	}
	return t.Flush()
}
