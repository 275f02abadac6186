package demo

import "syscall"

// childAttr has the services die with the demo, however it dies, and keeps the
// terminal's Ctrl-C from them: the demo ends them itself.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
