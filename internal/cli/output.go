package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/txmq/txmq/model"
)

// output is the flag of every command that reads.
type output struct {
	Output string `default:"table" enum:"table,json" help:"table or json."`
}

// write gives v as JSON, or else the table.
func (o output) write(w io.Writer, v any, header []string, rows [][]string) error {
	if o.Output == "json" {
		return writeJSON(w, v)
	}
	return writeTable(w, header, rows)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func writeTable(w io.Writer, header []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// printable quotes what would move the cursor, break the table or pass for
// nothing: event IDs and errors are other people's text.
func printable(s string) string {
	switch {
	case s == "":
		return "-"
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == '\uFFFD' }):
		return strconv.Quote(s)
	default:
		return s
	}
}

// at is a time in UTC, to the millisecond.
func at(t model.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// short is the first line of a text, at most n characters of it.
func short(s string, n int) string {
	line, _, more := strings.Cut(s, "\n")
	if runes := []rune(line); len(runes) > n {
		line, more = string(runes[:n]), true
	}
	if more {
		line += "…"
	}
	return line
}

// seconds is a duration as people read it in a column.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }
