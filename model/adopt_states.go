package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/txmq/txmq"
)

// meanings are the words that say by themselves what they mean.
var meanings = map[string]Status{
	"PROCESSING": Processing, "CONSUMING": Processing,
	"SUCCESS": Success, "CONSUMED": Success,
	"FAIL": Fail, "FAILED": Fail,
	"DEAD": Dead,
}

// assumed is what most people mean by numbers. It is never acted upon: with the
// wrong one for SUCCESS, what was never done would be skipped for ever.
var assumed = map[string]Status{"0": Processing, "1": Success, "2": Fail}

// mapped says what a state means and becomes.
func (c AdoptConfig) mapped(st AdoptedState) AdoptedState {
	ok := false
	if st.Means, ok = c.Map[st.Old]; !ok {
		st.Means, ok = meanings[strings.ToUpper(strings.TrimSpace(st.Old))]
	}
	if !ok {
		st.Means, st.Assumed = assumed[st.Old]
	}
	st.Becomes = st.Means
	if st.Means == Processing {
		st.Becomes = Fail
	}
	return st
}

// states maps what was found, and reports what can't be.
func (a *Adoption) states(c AdoptConfig, found []AdoptedState) {
	var guesses, unknown []string
	for _, st := range found {
		st = c.mapped(st)
		a.States = append(a.States, st)
		switch {
		case st.Assumed:
			guesses = append(guesses, fmt.Sprintf("%s=%s", st.Old, st.Means))
		case st.Means == "":
			unknown = append(unknown, fmt.Sprintf("%q (%d rows)", st.Old, st.Rows))
		case st.Means == Processing:
			a.note("%d rows in state %q become FAIL: whether they were done is not known, so they run at their next delivery; "+
				"the broker does not deliver again what was acknowledged, and that is for `txmq records retry` or `resolve`", st.Rows, st.Old)
		}
	}
	if unknown != nil {
		a.problem("states that say nothing by themselves: "+strings.Join(unknown, ", "),
			"say what they mean: --map OLD=PROCESSING|SUCCESS|FAIL|DEAD,...")
	}
	if guesses != nil {
		slices.Sort(guesses)
		list := strings.Join(guesses, ",")
		a.problem("states that are numbers: most people mean "+list, "if that is right, say so: --map "+list)
	}
	for _, old := range slices.Sorted(maps.Keys(c.Map)) {
		if !slices.ContainsFunc(found, func(st AdoptedState) bool { return st.Old == old }) {
			a.note("no row is in state %q, which was mapped to %s", old, c.Map[old])
		}
	}
}

func (a *Adoption) note(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

func (a *Adoption) problem(problem, hint string) {
	a.Problems = append(a.Problems, &txmq.SchemaError{Table: a.t.name, Problem: problem, Hint: hint})
}
