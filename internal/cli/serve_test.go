package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// probe asks for a page and gives status and text.
func probe(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

func TestHealth(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	away := errors.New("dial tcp 10.0.0.1:3306: connection refused")
	var down bool // changed between probes only
	ping := func(context.Context) error {
		if down {
			return away
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun, drained, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, ping, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			<-drained // a job in progress
			return nil
		}, slog.New(slog.DiscardHandler))
	}()
	<-begun
	want := func(path string, status int, text string) {
		t.Helper()
		if s, got := probe(t, addr, path); s != status || got != text {
			t.Errorf("GET %s = %d %q, want %d %q", path, s, got, status, text)
		}
	}
	want("/livez", 200, "ok")
	want("/readyz", 200, "ok")
	down = true
	want("/readyz", 503, "database away")
	want("/livez", 200, "ok")
	down = false
	cancel()
	want("/readyz", 503, "stopping")
	want("/livez", 200, "ok")
	close(drained)
	if err := <-ended; err != nil {
		t.Errorf("serve = %v, want nil", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the page is still there after the end")
	}
}

func TestServeEndsWithItsParts(t *testing.T) {
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		closed bool
		run    func(context.Context) error
	}{
		"the page can't serve": {true, func(ctx context.Context) error { <-ctx.Done(); return nil }},
		"the jobs fail":        {false, func(context.Context) error { return bad }},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if c.closed {
				_ = listener.Close()
			}
			ping := func(context.Context) error { return nil }
			if err := serve(t.Context(), listener, ping, c.run, slog.New(slog.DiscardHandler)); err == nil {
				t.Error("serve = nil, want the error")
			}
		})
	}
}

func TestServe(t *testing.T) {
	dsn := fileDSN(t)
	if r := command(t, "", "migrate", "up", "--dsn", dsn); r.code != exitOK {
		t.Fatal(r.stderr)
	}
	t.Run("logs JSON where there is no terminal, and stops with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		logs, w := io.Pipe()
		code := make(chan int, 1)
		go func() {
			code <- Run(ctx, []string{"serve", "--dsn", dsn, "--listen=127.0.0.1:0", "--log-level=debug"},
				strings.NewReader(""), io.Discard, w)
			_ = w.Close()
		}()
		var messages []string
		lines := bufio.NewScanner(logs)
		for lines.Scan() {
			var line struct{ Msg, Listen, Job string }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatalf("log line %s: %v", lines.Text(), err)
			}
			messages = append(messages, line.Msg)
			switch {
			case line.Msg == "serving":
				if s, _ := probe(t, line.Listen, "/readyz"); s != 200 {
					t.Errorf("/readyz = %d, want 200", s)
				}
			case line.Job == "sweep": // the first run comes at once
				cancel()
			}
		}
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, "compensate is off") }) {
			t.Errorf("log %v does not say that compensate is off", messages)
		}
		if got := <-code; got != exitOK || messages[len(messages)-1] != "stopped" {
			t.Errorf("exit code %d, log %v; want 0 and \"stopped\" last", got, messages)
		}
	})
	t.Run("an address in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r := command(t, "", "serve", "--dsn", dsn, "--listen", l.Addr().String())
		r.hinted(t, exitFailure)
		if !strings.Contains(r.stderr, "in use") {
			t.Errorf("stderr: %s", r.stderr)
		}
	})
	t.Run("all that is wrong at once, in the words of the flags", func(t *testing.T) {
		r := command(t, "", "serve", "--dsn", dsn, "--drain=-1s", "--sweep-every=0s", "--stale=0s", "--name-servers=x")
		r.hinted(t, exitUsage)
		for _, flag := range []string{"--drain is", "--sweep-every is", "--stale is", "--name-servers is"} {
			if !strings.Contains(r.stderr, flag) {
				t.Errorf("want %q: %s", flag, r.stderr)
			}
		}
		r = command(t, "", "serve", "--dsn", dsn, "--name-servers=127.0.0.1:1", "--handler-group=shares=a b", "--dead-letters=c d", "--stale=2h")
		r.hinted(t, exitUsage)
		for _, want := range []string{`--handler-group "shares" is "a b"`, `--dead-letters is "c d"`, "hint: see `txmq serve --help`"} {
			if !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "jobs.Config") {
				t.Errorf("want %q, and no field of Go: %s", want, r.stderr)
			}
		}
	})
	for _, bad := range []string{"--drain=-1s", "--sweep-every=1500ms", "--sweep-every=0s", "--stale=0s", "--stale=-1m", "--log-level=loud", "--log-format=xml"} {
		t.Run("refused: "+bad, func(t *testing.T) {
			command(t, "", "serve", "--dsn", dsn, bad).hinted(t, exitUsage)
		})
	}
}
