package txguard

import "strings"

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
}

// forbidden names the kind of the first statement in query that may not run
// inside a guarded transaction, or returns "".
func forbidden(query string) string {
	for rest := query; rest != ""; {
		var words []string
		words, rest = statement(rest)
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
	switch first := at(0); {
	case first == "/*!":
		return "an executable comment"
	case first == "ROLLBACK" && (at(1) == "TO" || at(2) == "TO"):
		return "" // to a savepoint
	case (first == "CREATE" || first == "DROP") && at(1) == "TEMPORARY":
		return ""
	case first == "SET":
		for _, w := range words[1:] {
			switch w {
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

// isSavepoint tells gorm's nested transactions: SAVEPOINT, ROLLBACK TO, RELEASE.
func isSavepoint(query string) bool {
	words, _ := statement(query)
	if len(words) == 0 {
		return false
	}
	return words[0] == "SAVEPOINT" || words[0] == "RELEASE" || words[0] == "ROLLBACK"
}

// mayBreakMidway: a query that takes locks while it sends rows, so that a
// deadlock can come after its first row. A plain SELECT takes none at READ
// COMMITTED and REPEATABLE READ.
func mayBreakMidway(query string) bool {
	words, _ := statement(query)
	if len(words) == 0 {
		return true
	}
	if words[0] != "SELECT" && words[0] != "WITH" && words[0] != "SHOW" && words[0] != "VALUES" {
		return true
	}
	for _, w := range words[1:] {
		switch w {
		case "FOR", "LOCK", "INSERT", "UPDATE", "DELETE", "INTO":
			return true
		}
	}
	return false
}

// statement splits the first statement off query and returns its bare words in
// upper case: without strings, quoted names, comments and punctuation. An
// executable comment (MySQL's /*! and MariaDB's /*M!) gives the word "/*!".
func statement(query string) (words []string, rest string) {
	for i := 0; i < len(query); {
		switch c := query[i]; {
		case c == ';':
			return words, query[i+1:]
		case c == '\'' || c == '"' || c == '`':
			i = skipQuoted(query, i)
		case c == '#', strings.HasPrefix(query[i:], "--"):
			i = skipTo(query, i, "\n")
		case strings.HasPrefix(query[i:], "/*"):
			if strings.HasPrefix(query[i:], "/*!") || strings.HasPrefix(query[i:], "/*M!") {
				return []string{"/*!"}, ""
			}
			i = skipTo(query, i+2, "*/")
		case isWord(c):
			start := i
			for i < len(query) && isWord(query[i]) {
				i++
			}
			words = append(words, strings.ToUpper(query[start:i]))
		default:
			i++
		}
	}
	return words, ""
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func skipQuoted(s string, i int) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
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
