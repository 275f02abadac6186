//go:build txmq_fault

package main

import "github.com/txmq/txmq/internal/fault"

// hits says how often each fault point was passed.
func hits() map[string]int {
	n := map[string]int{}
	for _, name := range fault.All() {
		n[string(name)] = fault.Hits(name)
	}
	return n
}
