package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/model"
)

func TestConfirm(t *testing.T) {
	for answer, ok := range map[string]bool{"yes\n": true, "yes\r\n": true, "yes": true, "\n": false, "": false, "y\n": false, "YES\n": false, "no\n": false} {
		var out bytes.Buffer
		err := confirm(strings.NewReader(answer), &out, "drops it\n")
		if (err == nil) != ok {
			t.Errorf("confirm(%q) = %v, want consent %v", answer, err, ok)
		}
		if !strings.Contains(out.String(), "drops it") {
			t.Errorf("the question does not say what is lost: %q", out.String())
		}
	}
}

func TestAdoptErrorsSayTheWayBack(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		plan model.Adoption
		want []string
		code int
	}{
		"of the table's own name": {
			&model.AdoptError{Table: "t", Kept: "t_before_txmq", Step: "copy", Err: errors.New("lost")},
			model.Adoption{Table: "t", Kept: "t_before_txmq", Ours: "t"},
			[]string{`stopped at the step "copy": lost`, "hint: run it again", "`txmq migrate down --to 0`, then RENAME TABLE t_before_txmq TO t"},
			exitFailure,
		},
		"of another name, beside tables in use": {
			&model.AdoptError{Table: "old", Kept: "old_before_txmq", Step: "copy", Err: errors.New("lost")},
			model.Adoption{Table: "old", Kept: "old_before_txmq", Ours: "t"},
			[]string{"has run: RENAME TABLE old_before_txmq TO old"},
			exitFailure,
		},
		"in use": {
			&model.AdoptError{Table: "t", Step: "rename", Err: &txmq.SchemaError{Table: "t", Problem: "is in use", Hint: "stop them"}},
			model.Adoption{},
			[]string{"table t: is in use", "hint: stop them"},
			exitFailure,
		},
		"a bad field": {
			&txmq.FieldError{Field: "model.AdoptConfig.Zone", Value: "CET", Want: "an offset"},
			model.Adoption{},
			[]string{`--zone is "CET"`},
			exitUsage,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			code := report(&errs, adoptError(c.err, c.plan), nil)
			result{code, "", errs.String()}.hinted(t, c.code)
			for _, want := range c.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("want %q in %s", want, errs.String())
				}
			}
		})
	}
	var errs bytes.Buffer
	report(&errs, adoptError(&model.AdoptError{Table: "old", Kept: "k", Err: errors.New("x")}, model.Adoption{Table: "old", Ours: "t"}), nil)
	if strings.Contains(errs.String(), "down --to 0") {
		t.Errorf("a way back that drops the tables of others: %s", errs.String())
	}
}
