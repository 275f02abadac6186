package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

// TestMain lets the test's program stand for the services too: the demo starts
// them with ORDERS_SUFFIX set.
func TestMain(m *testing.M) {
	if os.Getenv("ORDERS_SUFFIX") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	testenv.Main(m)
}
