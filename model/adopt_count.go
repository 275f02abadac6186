package model

import (
	"context"
	"fmt"
	"slices"
)

// names of the two key columns as expressions.
func (t *foreign) keys() (event, consumer string) {
	e, _ := t.column("event_id")
	c, _ := t.column("consumer")
	return e.text(), c.text()
}

// state is theirs as text; NULL is one, too.
func (t *foreign) state() string {
	c, _ := t.column("status")
	return "COALESCE(" + c.text() + ", 'NULL')"
}

// countBad finds rows whose keys our columns can't hold.
func (s *Store) countBad(ctx context.Context, c conn, a *Adoption) error {
	event, consumer := a.t.keys()
	var empty, long, spaced int64
	err := c.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(COALESCE(e, '') = '' OR COALESCE(c, '') = ''), 0), "+
		"COALESCE(SUM(LENGTH(e) > 255 OR LENGTH(c) > 255), 0), COALESCE(SUM(e LIKE '% ' OR c LIKE '% '), 0) FROM (SELECT "+
		event+" AS e, "+consumer+" AS c"+a.t.from()+") all_").Scan(&a.Rows, &empty, &long, &spaced)
	if err != nil {
		return err
	}
	if empty > 0 {
		a.problem(fmt.Sprintf("%d rows have no event_id or no consumer", empty), "delete them, or give them one: no message can be told by them")
	}
	if long > 0 {
		a.problem(fmt.Sprintf("%d rows have an event_id or a consumer of more than 255 bytes", long), "shorten them here and in the handler's EventID function, or delete them")
	}
	if spaced > 0 {
		a.note("%d rows have an event_id or a consumer that ends with a space, which counts from now on", spaced)
	}
	if a.t.keepsApart() {
		return nil
	}
	var twice int64
	err = c.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1"+a.t.from()+" GROUP BY "+event+", "+consumer+" HAVING COUNT(*) > 1) twice").Scan(&twice)
	if twice > 0 {
		a.problem(fmt.Sprintf("%d pairs of event_id and consumer have more than one row", twice),
			"leave one of each: SELECT event_id, consumer, COUNT(*) FROM "+a.t.name+" GROUP BY 1, 2 HAVING COUNT(*) > 1")
	}
	return err
}

// keepsApart: a unique key of theirs lets no two rows have the same bytes, since
// every collation takes equal bytes for equal.
func (t *foreign) keepsApart() bool {
	for _, columns := range t.unique {
		if !slices.ContainsFunc(columns, func(c string) bool { return c != "event_id" && c != "consumer" }) {
			return true
		}
	}
	return false
}

// mostStates is how many a column of states may have before it is taken for
// something else.
const mostStates = 50

func (s *Store) countStates(ctx context.Context, c conn, a *Adoption) error {
	found, err := grouped(ctx, c, a.t, a.t.state(), mostStates+1)
	if err != nil {
		return err
	}
	if len(found) > mostStates {
		a.problem("status has more than 50 values", "it is no column of states; rename the one that is to status")
		return nil
	}
	var states []AdoptedState
	for _, g := range found {
		states = append(states, AdoptedState{Old: g.Name, Rows: g.Rows})
	}
	a.states(a.t.cfg, states)
	return nil
}

func (s *Store) countConsumers(ctx context.Context, c conn, a *Adoption) (err error) {
	_, consumer := a.t.keys()
	a.Consumers, err = grouped(ctx, c, a.t, consumer, 20)
	return err
}

// grouped counts the rows of each value, the most frequent first.
func grouped(ctx context.Context, c conn, t *foreign, what string, most int) (list []AdoptedConsumer, err error) {
	err = each(ctx, c, func(scan func(...any) error) error {
		var g AdoptedConsumer
		err := scan(&g.Name, &g.Rows)
		list = append(list, g)
		return err
	}, "SELECT COALESCE("+what+", 'NULL') AS v, COUNT(*) AS n"+t.from()+" GROUP BY v ORDER BY n DESC, v LIMIT ?", most)
	return list, err
}

// countMerged: rows of another origin under the same keys would hide theirs.
func (s *Store) countMerged(ctx context.Context, c conn, a *Adoption) error {
	var there int
	err := c.QueryRowContext(ctx, s.d.tableExists, a.Ours).Scan(&there)
	if err != nil || there == 0 || a.Begun || a.Table == a.Ours {
		return err
	}
	event, consumer := a.t.keys()
	var both int64
	err = c.QueryRowContext(ctx, "SELECT COUNT(*)"+a.t.from()+" JOIN "+a.Ours+" o ON o.event_id = "+event+" AND o.consumer = "+consumer).Scan(&both)
	if both > 0 {
		a.problem(fmt.Sprintf("%d of its events stand in %s already, under the same handler", both, a.Ours), "delete them here or there: which one is right can't be told")
	}
	return err
}

// lookAtTimes says which times are not theirs, and warns of a wrong zone.
func (s *Store) lookAtTimes(ctx context.Context, c conn, a *Adoption) error {
	for _, name := range []string{"created_at", "updated_at"} {
		if col, ok := a.t.column(name); !ok || !col.isTime() {
			a.note("%s is not known: it becomes %s", name, map[string]string{"created_at": "the time of the adoption", "updated_at": "created_at"}[name])
		}
	}
	var ahead int64
	err := c.QueryRowContext(ctx, s.q("SELECT COALESCE(TIMESTAMPDIFF(MINUTE, {now}, MAX("+a.t.updatedAt("{now}")+")), 0)"+a.t.from())).Scan(&ahead)
	if ahead > 5 {
		a.problem(fmt.Sprintf("its newest row is of %d minutes from now, taken as %s", ahead, a.t.cfg.Zone), "give the zone that its times are in: --zone +08:00")
	}
	return err
}

func (c foreignColumn) isTime() bool { return c.kind == "datetime" || c.kind == "timestamp" }

// at is a time of theirs in UTC, or instead when it has none. The session is in
// UTC, so a TIMESTAMP is already.
func (t *foreign) at(name, instead string) string {
	c, ok := t.column(name)
	if !ok || !c.isTime() {
		return instead
	}
	column := "t." + quoted(name)
	expr := column
	if c.kind == "datetime" && t.cfg.Zone != "+00:00" {
		expr = "CONVERT_TZ(" + expr + ", '" + t.cfg.Zone + "', '+00:00')"
	}
	return "CASE WHEN COALESCE(YEAR(" + column + "), 0) = 0 THEN " + instead + " ELSE " + expr + " END"
}

func (t *foreign) updatedAt(now string) string { return t.at("updated_at", t.at("created_at", now)) }
