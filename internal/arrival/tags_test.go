package arrival

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTags(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string][]string{
		"": {"*"}, " * ": {"*"}, "a": {"a"}, "b || a": {"a", "b"}, "a||b": {"a", "b"}, "a || a": {"a"},
		"two words || b": {"b", "two words"}, "支付 || order.paid": {"order.paid", "支付"}, "or || is": {"is", "or"},
	} {
		got, err := ParseTags(expression)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("ParseTags(%q) = %v, -want +got:\n%s", expression, err, diff)
		}
	}
	for _, expression := range []string{"a ||", "|| a", "a || * ", "a | b", "a |||b", "a || \x01"} {
		if got, err := ParseTags(expression); err == nil || strings.Contains(err.Error(), "SQL92") {
			t.Errorf("ParseTags(%q) = %v, %v, want it refused", expression, got, err)
		}
	}
	for _, expression := range []string{"a > 5", "TAGS in ('a', 'b')", "price between 1 and 5", "a is not null", "a = TRUE", "x IS NULL or y IS NULL"} {
		if got, err := ParseTags(expression); err == nil || !strings.Contains(err.Error(), "SQL92") {
			t.Errorf("ParseTags(%q) = %v, %v, want SQL92 refused by name", expression, got, err)
		}
	}
}
