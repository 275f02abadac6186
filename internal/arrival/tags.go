package arrival

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// AllTags is the filter that wants every message of a topic. No message can have
// it for a tag.
const AllTags = "*"

// tagsWanted is the grammar of a handler's Tags, for a person.
const tagsWanted = `"a || b", or "*" or nothing for all`

// sql92 is what no list of tags has, and SQL92 filters do.
var sql92 = regexp.MustCompile(`(?i)[=<>()']|\s(is|in|between|and|or|not|like)\s`)

// ParseTags reads a handler's Tags: sorted, each tag once; only AllTags for all.
// The error is what a person should write instead.
func ParseTags(expression string) ([]string, error) {
	expression = strings.TrimSpace(expression)
	if expression == "" || expression == AllTags {
		return []string{AllTags}, nil
	}
	if sql92.MatchString(expression) {
		return nil, fmt.Errorf("%s; SQL92 filters are not supported", tagsWanted)
	}
	var tags []string
	for tag := range strings.SplitSeq(expression, "||") {
		switch tag = strings.TrimSpace(tag); {
		case tag == "" || tag == AllTags || strings.ContainsFunc(tag, func(c rune) bool { return c == '|' || unicode.IsControl(c) }):
			return nil, fmt.Errorf("%s; it has the part %q", tagsWanted, tag)
		case !slices.Contains(tags, tag):
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags, nil
}
