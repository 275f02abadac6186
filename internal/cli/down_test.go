package cli

import (
	"bytes"
	"strings"
	"testing"
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
