// Command worker is a small order service, made to be killed: it sends, answers
// check-backs, consumes and sweeps as its Setup says, and writes a line for all
// that happens. Only the end-to-end tests run it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/txmq/txmq/test/e2e/protocol"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if err := run(context.Background(), log); err != nil {
		log.LogAttrs(context.Background(), slog.LevelError, "worker ends", slog.Any("error", err))
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	var setup protocol.Setup
	if err := json.Unmarshal([]byte(os.Getenv(protocol.Environment)), &setup); err != nil {
		return fmt.Errorf("%s: %w", protocol.Environment, err)
	}
	s := &service{setup: setup, log: log, out: &printer{to: json.NewEncoder(os.Stdout)}, release: make(chan struct{})}
	stop := make(chan struct{})
	queue := make(chan protocol.Command, 100)
	go listen(s, queue, stop)
	return s.run(ctx, queue, stop)
}

// listen reads commands for the life of the process. The end of stdin is the
// end of the test binary, which nothing here shall outlive.
func listen(s *service, queue chan<- protocol.Command, stop chan<- struct{}) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var c protocol.Command
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			os.Exit(2)
		}
		switch c.Do {
		case protocol.DoRelease:
			close(s.release)
		case protocol.DoStop:
			close(stop)
			return
		default:
			queue <- c
		}
	}
	os.Exit(3)
}

// printer writes whole lines, at once: a process that is killed keeps nothing
// back.
type printer struct {
	mu sync.Mutex
	to *json.Encoder
}

func (p *printer) line(l protocol.Line) {
	if p.write(l) != nil {
		os.Exit(4) // nobody listens any more
	}
}

func (p *printer) write(l protocol.Line) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to.Encode(l)
}
