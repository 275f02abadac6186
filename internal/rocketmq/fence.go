//go:build !race

package rocketmq

// fence is for the race detector only.
func fence() {}
