//go:build race

package rocketmq

import "os"

// fence shows the race detector that what the client's goroutines wrote to the
// network before comes before what follows. The client reads the flag that says
// it is closed without a lock, and its Shutdown writes it; we wait until nobody
// is about to read it, which the detector can't see. A read orders itself
// behind all writes of the process (syscall.Read, ioSync).
func fence() {
	_, _ = os.ReadFile(os.DevNull)
}
