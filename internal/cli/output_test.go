package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq/model"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "-",
		"pay:42":               "pay:42",
		"订单 42":                "订单 42",
		"a\tb":                 `"a\tb"`,
		"a\nhint: rm":          `"a\nhint: rm"`,
		"\x1b[31mred":          `"\x1b[31mred"`,
		" a":                   `" a"`,
		"a ":                   `"a "`,
		"\xff":                 `"\xff"`,
		"a\u202eb":             `"a\u202eb"`, // would turn what follows around
		"no\u00a0break":        `"no\u00a0break"`,
		strings.Repeat("x", 3): "xxx",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for _, c := range [][2]string{{"", ""}, {"abc", "abc"}, {"abcde", "abcd…"}, {"a\nb", "a…"}, {"订单失败了吗", "订单失败…"}} {
		if got := short(c[0], 4); got != c[1] {
			t.Errorf("short(%q) = %q, want %q", c[0], got, c[1])
		}
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	if err := writeTable(&b, []string{"A", "LONG"}, [][]string{{"longer", "x"}, {"", "y\tz"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "A       LONG\nlonger  x\n-       \"y\\tz\"\n"; got != want {
		t.Errorf("table:\n%s\nwant\n%s", got, want)
	}
}

func TestTimesAreUTC(t *testing.T) {
	zone := time.FixedZone("", 8*3600)
	if got := at(model.Time{Time: time.Date(2026, 1, 2, 8, 0, 0, 5e6, zone)}); got != "2026-01-02T00:00:00.005Z" {
		t.Errorf("at = %s", got)
	}
}
