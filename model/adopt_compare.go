package model

import (
	"regexp"
	"slices"
	"strings"
)

// ourColumn is a column of t_msg_consume as the migrations say it.
type ourColumn struct{ name, def string }

var (
	columnLine = regexp.MustCompile(`^  (\w+) +(.+?),?$`)
	keyLine    = regexp.MustCompile(`^  ((?:UNIQUE )?KEY \w+ \(.+\)),?$`)
	addColumn  = regexp.MustCompile(`ADD COLUMN (\w+) ([^,';]+)`)
	addKey     = regexp.MustCompile(`ADD (KEY \w+ \([^)]+\))`)
)

// ourDDL reads columns and keys of t_msg_consume from the migrations.
func ourDDL(d dialect) (columns []ourColumn, keys []string) {
	for _, name := range files(d) {
		up, _ := ways(source(d, name, ""))
		inside := false
		for line := range strings.SplitSeq(up, "\n") {
			switch key, column := keyLine.FindStringSubmatch(line), columnLine.FindStringSubmatch(line); {
			case strings.HasPrefix(line, "CREATE TABLE IF NOT EXISTS msg_consume "):
				inside = true
			case strings.HasPrefix(line, ")"):
				inside = false
			case inside && key != nil:
				keys = append(keys, key[1])
			case inside && column != nil:
				columns = append(columns, ourColumn{column[1], strings.Join(strings.Fields(column[2]), " ")})
			case strings.Contains(line, "ALTER TABLE msg_consume ADD"):
				for _, m := range addColumn.FindAllStringSubmatch(line, -1) {
					columns = append(columns, ourColumn{m[1], strings.TrimSpace(m[2])})
				}
				for _, m := range addKey.FindAllStringSubmatch(line, -1) {
					keys = append(keys, m[1])
				}
			}
		}
	}
	return columns, keys
}

// words is their column in the manner of ours.
func (c foreignColumn) words() string {
	def := strings.ToUpper(c.full)
	if c.collation != "" {
		def += " COLLATE " + c.collation
	}
	if !c.nullable {
		def += " NOT NULL"
	}
	if c.preset {
		def += " DEFAULT ..."
	}
	return def
}

var displayWidth = regexp.MustCompile(`^(TINY|SMALL|MEDIUM|BIG)?INT\(\d+\)`)

// as tells whether their column serves as ours.
func (c foreignColumn) as(our ourColumn) bool {
	theirs := strings.ToUpper(c.full)
	if m := displayWidth.FindString(theirs); m != "" {
		kind, _, _ := strings.Cut(m, "(")
		theirs = kind + strings.TrimPrefix(theirs, m)
	}
	kind, rest, _ := strings.Cut(our.def, " ")
	_, collation, named := strings.Cut(rest, "COLLATE ")
	collation, _, _ = strings.Cut(collation, " ")
	text := strings.Contains(rest, "CHARACTER SET utf8mb4") && c.charset == "utf8mb4"
	return theirs == kind && c.preset == strings.Contains(rest, "DEFAULT") && c.nullable == !strings.Contains(rest, "NOT NULL") &&
		(c.collation == "" || named && c.collation == collation || !named && text)
}

var keyParts = regexp.MustCompile(`^(UNIQUE )?KEY (\w+) \((.+)\)$`)

// keyClauses add a key of ours, and drop another of its name before.
func (t *foreign) keyClauses(key string) []string {
	m := keyParts.FindStringSubmatch(key)
	unique, taken := t.indexes[m[2]]
	switch {
	case taken && unique && m[1] != "" && strings.Join(t.unique[m[2]], ", ") == m[3]:
		return nil
	case taken:
		return []string{"DROP KEY " + m[2], "ADD " + key}
	default:
		return []string{"ADD " + key}
	}
}

// compare lists what differs from ours, and what would make it ours in place.
func (s *Store) compare(a *Adoption) {
	columns, keys := ourDDL(s.d)
	var clauses []string
	for _, our := range columns {
		c, ok := a.t.column(our.name)
		switch {
		case !ok:
			a.Changes = append(a.Changes, AdoptedColumn{Name: our.name, Ours: our.def})
			clauses = append(clauses, "ADD COLUMN "+our.name+" "+our.def)
			if our.name == "id" && a.t.key != "" {
				clauses = append([]string{"DROP PRIMARY KEY"}, clauses...)
			}
		case !c.as(our):
			a.Changes = append(a.Changes, AdoptedColumn{Name: our.name, Theirs: c.words(), Ours: our.def})
			clauses = append(clauses, "MODIFY "+our.name+" "+strings.TrimSuffix(our.def, " PRIMARY KEY"))
		}
		if ok && (our.name == "event_id" || our.name == "consumer") && c.collation != "" && !strings.HasSuffix(c.collation, "_bin") {
			a.note("%s was compared by %s; from now on byte by byte, so that 'Evt-A', 'evt-a' and 'Evt-A ' are three", our.name, c.collation)
		}
	}
	for _, c := range a.t.columns {
		if !slices.ContainsFunc(columns, func(our ourColumn) bool { return our.name == c.name }) {
			a.Changes = append(a.Changes, AdoptedColumn{Name: c.name, Theirs: c.words()})
		}
	}
	a.note("no payload_hash is known, so any body of an adopted event is taken for the one it had")
	for _, key := range keys {
		clauses = append(clauses, a.t.keyClauses(key)...)
	}
	if a.Engine != "InnoDB" {
		clauses = append(clauses, "ENGINE = InnoDB")
	}
	if clauses == nil {
		return
	}
	a.Alter = "ALTER TABLE " + quoted(a.t.name) + "\n  " + strings.Join(clauses, ",\n  ")
}
