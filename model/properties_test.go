package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPropertiesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.MapOf(rapid.StringMatching(`[A-Z_]{1,9}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(rt, "properties")
		text, err := encodeProperties(in)
		if err != nil {
			rt.Fatal(err)
		}
		out, err := decodeProperties(text)
		if err != nil || !cmp.Equal(in, out) {
			rt.Fatalf("%q came back as %q, %v", in, out, err)
		}
	})
	text, err := encodeProperties(map[string]string{"KEYS": "pay:1", "GBK": "\xc4\xe3"})
	if want := `{"GBK":{"base64":"xOM="},"KEYS":"pay:1"}`; err != nil || string(text) != want {
		t.Errorf("stands as %s, %v, want %s", text, err, want)
	}
	for _, bad := range []string{"", "[]", `{"a":1}`} {
		if _, err := decodeProperties([]byte(bad)); err == nil || !strings.Contains(err.Error(), "of the row") {
			t.Errorf("decode %q = %v, want an error", bad, err)
		}
	}
}
