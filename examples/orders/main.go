// Command orders is a shop of small services that pay orders and share the
// profit through RocketMQ, and a demo that breaks them while they do.
//
//	make demo        # scripts/services up && go run ./examples/orders demo
//
// The services are in package shop: read shop/pay.go and shop/share.go first.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
