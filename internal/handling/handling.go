// Package handling is what the consumer and the jobs have in common around a
// function of the user's.
package handling

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/txmq/txmq/internal/crew"
)

// Call runs fn, on a goroutine of the crew's so that runtime.Goexit in it does not
// take the caller's along, and returns when fn has ended: fn's error; gone, if it
// ended the goroutine; what panicked makes of a panic's value and stack.
func Call(on *crew.Crew, fn func() error, gone error, panicked func(v any, stack []byte) error) error {
	err := gone
	on.Do(func() {
		defer func() {
			if v := recover(); v != nil {
				err = panicked(v, debug.Stack())
			}
		}()
		err = fn()
	})
	return err
}

// SettleTimeout bounds what is written or read after a function's context may
// have ended.
const SettleTimeout = 5 * time.Second

// Settle gives a context for what has to be written although ctx, or even the
// stop's, has ended.
func Settle(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), SettleTimeout)
}
