//go:build !linux

package demo

import "syscall"

// childAttr keeps the terminal's Ctrl-C from the services: the demo ends them
// itself.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
