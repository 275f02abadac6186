package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logging is the flags of a command that logs, to stderr.
type logging struct {
	LogFormat string `default:"auto" enum:"auto,text,json" help:"text, json, or auto: text on a terminal, else json."`
	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
}

func (l logging) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // kong has checked the word
	terminal := onTerminal(w)
	if l.LogFormat == "json" || l.LogFormat == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != "",
	}))
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
