// Command txmq looks after the tables of txmq; see txmq --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/txmq/txmq/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
