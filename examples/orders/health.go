package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// probeTimeout bounds what a probe asks, under the second that probes wait.
const probeTimeout = 900 * time.Millisecond

// health answers the probes of deploy/kubernetes. /livez says that the process
// serves at all, and asks nobody: to restart it because a database is away would
// help nobody. /readyz says that the service does its work.
type health struct {
	stopping func() bool
	database func(context.Context) error
	service  atomic.Pointer[func(context.Context) error] // nil while it starts
}

// watch is told by the service how to ask it.
func (h *health) watch(ready func(context.Context) error) { h.service.Store(&ready) }

// ServeHTTP answers a probe.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/livez" && r.URL.Path != "/readyz" {
		http.NotFound(w, r)
		return
	}
	text := "ok"
	if r.URL.Path == "/readyz" {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		text = h.state(ctx)
	}
	if text != "ok" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, text+"\n") // the client's connection is the client's matter
}

func (h *health) state(ctx context.Context) string {
	ready := h.service.Load()
	switch {
	case h.stopping():
		return "stopping"
	case ready == nil, (*ready)(ctx) != nil:
		return "starting"
	case h.database(ctx) != nil:
		return "database away"
	default:
		return "ok"
	}
}

// serveHealth answers probes at addr until end is called.
func serveHealth(ctx context.Context, addr string, h http.Handler) (end func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("health page: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }() // end waits for it
	return func() error {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}
