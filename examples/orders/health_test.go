package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txmq/txmq/examples/orders/shop"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	var stopping, away, unready bool
	h := &health{
		stopping: func() bool { return stopping },
		database: func(context.Context) error { return errIf(away) },
	}
	want := func(what, path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != code || !strings.HasPrefix(w.Body.String(), text) {
			t.Errorf("%s: %s = %d %q, want %d %q", what, path, w.Code, w.Body, code, text)
		}
	}
	want("at first", "/readyz", 503, "starting")
	want("at first", "/livez", 200, "ok")
	want("another page", "/", 404, "404")
	h.watch(func(context.Context) error { return errIf(unready) })
	want("at work", "/readyz", 200, "ok")
	unready = true
	want("not subscribed", "/readyz", 503, "starting")
	unready, away = false, true
	want("without database", "/readyz", 503, "database away")
	want("without database", "/livez", 200, "ok")
	away, stopping = false, true
	want("at the end", "/readyz", 503, "stopping")
	want("at the end", "/livez", 200, "ok")
}

func errIf(bad bool) error {
	if bad {
		return errors.New("no")
	}
	return nil
}

func TestServeHealth(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:0"
	if _, err := serveHealth(t.Context(), "127.0.0.1:99999", http.NotFoundHandler()); err == nil {
		t.Error("port 99999 is served")
	}
	end, err := serveHealth(t.Context(), addr, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestServiceAnswersProbes: a service of the command line becomes ready.
func TestServiceAnswersProbes(t *testing.T) {
	s := services{DSN: testenv.MySQL(t), Namesrv: testenv.NameServer(t), Suffix: "-" + strings.ToLower(rand.Text()[:6])}
	db, err := shop.OpenDB(s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := shop.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, channel := range []string{shop.Web, shop.Market} {
		topic := shop.Config{Suffix: s.Suffix}.Topic(channel)
		if err := remoting.CreateTopic(t.Context(), testenv.Broker(t), topic, 1, 6); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the route of "+topic, func() bool {
			brokers, err := remoting.Brokers(t.Context(), s.Namesrv, topic)
			return err == nil && len(brokers) > 0
		})
	}
	for _, command := range []string{"pay", "share", "jobs"} {
		t.Run(command, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			addr := nobody(t)
			ended := make(chan int, 1)
			var log bytes.Buffer // read it after ended
			go func() {
				ended <- run(ctx, []string{
					command, "--dsn", s.DSN, "--namesrv", s.Namesrv, "--suffix=" + s.Suffix, "--health", addr,
				}, io.Discard, &log)
			}()
			ready := false
			eventually(t, "readiness, or an end", func() bool {
				ready = probed(t, "http://"+addr+"/readyz") == http.StatusOK
				return ready || len(ended) > 0
			})
			stop()
			if code := <-ended; code != 0 || !ready {
				t.Errorf("exit %d, ready %v, want 0 after it was ready: %s", code, ready, &log)
			}
		})
	}
}

// probed is the status of a page, 0 when nobody answers.
func probed(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// eventually polls, for what only a server can tell.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never seen: %s", what)
		}
	}
}
