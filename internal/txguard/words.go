package txguard

import (
	"math"
	"slices"
	"strings"
)

// ends are the first words of statements that end a transaction, begin another,
// commit implicitly, or could hide one that does.
var ends = map[string]bool{
	"BEGIN": true, "START": true, "COMMIT": true, "ROLLBACK": true, "END": true, "ABORT": true, "XA": true,
	"CREATE": true, "ALTER": true, "DROP": true, "TRUNCATE": true, "RENAME": true, "COMMENT": true,
	"LOCK": true, "UNLOCK": true, "GRANT": true, "REVOKE": true,
	"ANALYZE": true, "OPTIMIZE": true, "REPAIR": true, "CHECK": true, "CACHE": true, "FLUSH": true, "RESET": true,
	"INSTALL": true, "UNINSTALL": true, "CHANGE": true, "STOP": true, "PURGE": true,
	"PREPARE": true, "EXECUTE": true, "DEALLOCATE": true, "VACUUM": true, "REINDEX": true, "ATTACH": true, "DETACH": true,
	"PRAGMA": true,
	"CALL":   true, // a procedure may commit, and nothing would tell
	// MariaDB runs compound statements anywhere.
	"IF": true, "CASE": true, "WHILE": true, "FOR": true, "LOOP": true, "REPEAT": true, "UNTIL": true,
}

// forbidden names the kind of the first statement in query that may not run
// inside a guarded transaction, or returns "".
func (r Rules) forbidden(query string) string {
	var room words
	for rest := query; rest != ""; {
		var words []string
		words, rest = scan(room[:0], rest, r.Backslash, math.MaxInt)
		if kind := forbiddenStatement(words); kind != "" {
			return kind
		}
	}
	return ""
}

func forbiddenStatement(words []string) string {
	if len(words) == 0 {
		return ""
	}
	at := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch first := strings.ToUpper(at(0)); {
	case first == "/*!":
		return "an executable comment"
	case first == "ROLLBACK" && (is(at(1), "TO") || is(at(2), "TO")):
		return "" // to a savepoint
	case (first == "CREATE" || first == "DROP") && (is(at(1), "TEMPORARY") || is(at(1), "TEMP")):
		return ""
	case first == "LOAD" && is(at(1), "INDEX"):
		return "LOAD INDEX"
	case first == "SET" && is(at(1), "STATEMENT"):
		if i := slices.IndexFunc(words, func(w string) bool { return is(w, "FOR") }); i >= 0 {
			return forbiddenStatement(words[i+1:])
		}
		return ""
	case first == "SET":
		for _, w := range words[1:] {
			switch w = strings.ToUpper(w); w {
			case "AUTOCOMMIT", "TRANSACTION", "PASSWORD", "TX_ISOLATION", "TRANSACTION_ISOLATION", "COMPLETION_TYPE":
				return "SET " + w
			}
		}
		return ""
	case ends[first]:
		return first
	default:
		return ""
	}
}

// is compares words as SQL does, without making new ones: every statement of
// every function comes by here.
func is(word, upper string) bool { return strings.EqualFold(word, upper) }

// words is room for those of a usual statement.
type words [64]string

// isSavepoint tells gorm's nested transactions: SAVEPOINT, ROLLBACK TO, RELEASE.
func isSavepoint(query string, backslash bool) bool {
	var room words
	words, _ := scan(room[:0], query, backslash, 1)
	return len(words) > 0 && (is(words[0], "SAVEPOINT") || is(words[0], "RELEASE") || is(words[0], "ROLLBACK"))
}

// mayBreakMidway: a query that takes locks while it sends rows, so that a
// deadlock can come after its first row. A plain SELECT takes none at READ
// COMMITTED and REPEATABLE READ.
func mayBreakMidway(query string, backslash bool) bool {
	var room words
	words, _ := scan(room[:0], query, backslash, math.MaxInt)
	if len(words) == 0 {
		return true
	}
	first := words[0]
	if !is(first, "SELECT") && !is(first, "WITH") && !is(first, "SHOW") && !is(first, "VALUES") {
		return true
	}
	for _, w := range words[1:] {
		for _, lock := range []string{"FOR", "LOCK", "INSERT", "UPDATE", "DELETE", "INTO"} {
			if is(w, lock) {
				return true
			}
		}
	}
	return false
}

// scan splits the first statement off query and adds its bare words to words, at
// most so many: without strings, quoted names, comments and punctuation. An
// executable comment (MySQL's /*! and MariaDB's /*M!) gives the word "/*!".
// Where backslash is false, as on SQLite, it escapes nothing, and "--" needs no
// space behind it to begin a comment.
func scan(words []string, query string, backslash bool, most int) (_ []string, rest string) {
	for i := 0; i < len(query) && len(words) < most; {
		switch c := query[i]; {
		case c == ';':
			return words, query[i+1:]
		case c == '\'' || c == '"' || c == '`':
			i = skipQuoted(query, i, backslash)
		case c == '#', isDashes(query[i:], backslash):
			i = skipTo(query, i, "\n")
		case strings.HasPrefix(query[i:], "/*"):
			if strings.HasPrefix(query[i:], "/*!") || strings.HasPrefix(query[i:], "/*M!") {
				return append(words[:0], "/*!"), ""
			}
			i = skipTo(query, i+2, "*/")
		case isWord(c):
			start := i
			for i < len(query) && isWord(query[i]) {
				i++
			}
			words = append(words, query[start:i])
		default:
			i++
		}
	}
	return words, ""
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// isDashes: MySQL wants a space or a control character behind "--".
func isDashes(s string, spaced bool) bool {
	return strings.HasPrefix(s, "--") && (!spaced || len(s) == 2 || s[2] <= ' ')
}

func skipQuoted(s string, i int, backslash bool) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`' && backslash:
			i++
		case s[i] == quote:
			return i + 1 // a doubled quote simply opens the next quoted part
		}
	}
	return len(s)
}

func skipTo(s string, i int, end string) int {
	if n := strings.Index(s[i:], end); n >= 0 {
		return i + n + len(end)
	}
	return len(s)
}
