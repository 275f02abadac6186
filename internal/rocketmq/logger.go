package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// The client has one logger and one panic handler for the process, and by
// default prints message bodies with the one and drops panics with the other.
// The first component that is made replaces both, whatever was set before, and
// for good; what the client says then goes to the first logger that a component
// was given. This is state of the client's package, not of ours.
var (
	takeOver     sync.Once
	clientLogger = newBridge()
)

// useLogger makes the client log to l, if it is the first.
func useLogger(l *slog.Logger) *slog.Logger {
	if l != nil {
		clientLogger.to.CompareAndSwap(nil, l)
	}
	takeOver.Do(func() {
		rlog.SetLogger(clientLogger)
		primitive.DefaultPanicHandler = clientLogger.panicked
	})
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return l
}

// bridge is the client's logger. The client's Info is a line per queue every
// five seconds, so it is Debug here, and its Debug is dropped.
type bridge struct {
	to  atomic.Pointer[slog.Logger]
	min atomic.Int64 // slog.Level
}

var _ rlog.Logger = (*bridge)(nil)

func newBridge() *bridge {
	b := new(bridge)
	b.Level("info")
	return b
}

// ordinary are lines that the client writes as errors and that are everyday
// events here.
var ordinary = []string{
	"executeLocalTransaction but state unexpected", // a rollback
	"topic route info is nil or empty",             // comes back as an error of the send
}

func (b *bridge) Debug(string, map[string]any) {}

func (b *bridge) Info(msg string, fields map[string]any) { b.log(slog.LevelDebug, msg, fields) }

func (b *bridge) Warning(msg string, fields map[string]any) { b.log(slog.LevelWarn, msg, fields) }

func (b *bridge) Error(msg string, fields map[string]any) { b.log(slog.LevelError, msg, fields) }

// Fatal does not end the process; the client goes on after it.
func (b *bridge) Fatal(msg string, fields map[string]any) { b.log(slog.LevelError, msg, fields) }

// Level drops what is below it: "debug", "warn", "error" or "fatal"; anything
// else is "info".
func (b *bridge) Level(level string) {
	l := slog.LevelDebug // where the client's Info goes
	switch strings.ToLower(level) {
	case "warn":
		l = slog.LevelWarn
	case "error", "fatal":
		l = slog.LevelError
	}
	b.min.Store(int64(l))
}

// OutputPath is not for us: slog knows where lines go.
func (b *bridge) OutputPath(string) error { return nil }

func (b *bridge) log(level slog.Level, msg string, fields map[string]any) {
	if slices.Contains(ordinary, strings.TrimSpace(msg)) {
		level = slog.LevelDebug
	}
	to := b.to.Load()
	ctx := context.Background()
	if to == nil || level < slog.Level(b.min.Load()) || !to.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields)+1)
	attrs = append(attrs, slog.String("client_says", msg))
	for key, v := range fields {
		if s, ok := printable(key, v); ok {
			attrs = append(attrs, slog.String(key, s))
		}
	}
	slices.SortFunc(attrs[1:], func(x, y slog.Attr) int { return strings.Compare(x.Key, y.Key) })
	to.LogAttrs(ctx, level, "rocketmq client", attrs...)
}

func (b *bridge) panicked(cause any) {
	if to := b.to.Load(); to != nil {
		to.LogAttrs(context.Background(), slog.LevelError, "rocketmq client panicked",
			slog.Any("panic", fmt.Sprint(cause)), slog.String("stack", string(debug.Stack())))
	}
}

// printable is v as text, if it can hold no message. The client hands over
// pointers into its own state, so only what it means to be printed is.
func printable(key string, v any) (string, bool) {
	if key == "message" || key == "messages" {
		return "", false
	}
	switch v := v.(type) {
	case nil:
		return "nil", true
	case *primitive.Message, *primitive.MessageExt, primitive.Message, primitive.MessageExt, []byte:
		return "", false
	case error:
		return v.Error(), true
	case fmt.Stringer:
		if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && r.IsNil() {
			return "nil", true
		}
		return v.String(), true
	}
	switch k := reflect.TypeOf(v).Kind(); {
	case k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Float64:
		return fmt.Sprint(v), true
	default:
		return "", false
	}
}
