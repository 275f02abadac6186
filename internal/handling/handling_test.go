package handling

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestCall(t *testing.T) {
	t.Parallel()
	errGone, errOwn, errPanic := errors.New("gone"), errors.New("own"), errors.New("panic")
	var stack string
	panicked := func(v any, s []byte) error {
		stack = string(s)
		if v != "boom" {
			t.Errorf("panic's value is %v", v)
		}
		return errPanic
	}
	for name, c := range map[string]struct {
		fn   func() error
		want error
	}{
		"nil":    {func() error { return nil }, nil},
		"error":  {func() error { return errOwn }, errOwn},
		"panic":  {func() error { panic("boom") }, errPanic},
		"Goexit": {func() error { runtime.Goexit(); return nil }, errGone},
	} {
		if err := Call(nil, c.fn, errGone, panicked); !errors.Is(err, c.want) {
			t.Errorf("%s: Call = %v, want %v", name, err, c.want)
		}
	}
	if !strings.Contains(stack, "TestCall.func") {
		t.Errorf("stack does not show the function:\n%s", stack)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	cancel()
	ctx, done := Settle(parent)
	defer done()
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ctx.Err() != nil || !ok || left <= 0 || left > SettleTimeout || ctx.Value(key{}) != "kept" {
		t.Errorf("context of an ended one: %v, ends in %v, value %v", ctx.Err(), left, ctx.Value(key{}))
	}
}
