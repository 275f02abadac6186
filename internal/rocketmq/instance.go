package rocketmq

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
)

// instanceName is unique for each component, in this process and beside all
// others. The client makes its identity of it; two components with one identity
// share a client, and then only the first gets check-backs (Q01), a broker sees
// one consumer instead of two (Q35), and one's shutdown stops both (Q18).
func instanceName(group string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if r == '@' || r == '#' || r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, host)
	return fmt.Sprintf("%s#%d#%s#%016x", host, os.Getpid(), group, rand.Uint64()) //nolint:gosec // unique, not secret
}
