package cli

import (
	"context"
	"net/http"
	"time"
)

// readyTimeout bounds the question to the database, under the second that
// probes usually wait.
const readyTimeout = 900 * time.Millisecond

// health answers /livez while the process serves at all, and /readyz while it
// isn't stopping and the database answers. Why it doesn't is said in a word or
// two: the page needs no login.
func health(stopping func() bool, ping func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		switch {
		case stopping():
			answer(w, http.StatusServiceUnavailable, "stopping")
		case ping(ctx) != nil:
			answer(w, http.StatusServiceUnavailable, "database away")
		default:
			answer(w, http.StatusOK, "ok")
		}
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client's connection is the client's matter
}
