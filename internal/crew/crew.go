// Package crew runs functions on goroutines that it keeps. A new goroutine
// begins with a small stack and has to grow and copy it on the way down to the
// network; for a delivery's three of them that was a fifth of what it costs.
package crew

import "sync"

// Crew is made of as many goroutines as functions have run at the same time. The
// zero value is ready to use; a nil one keeps none. Safe for concurrent use.
type Crew struct {
	mu     sync.Mutex
	idle   []*member
	closed bool
}

// member is a goroutine that waits for its next function.
type member struct {
	work chan func()
	told chan bool     // the function is over; true when it returned
	gone chan struct{} // closed when the goroutine ends
}

// Do runs f on a goroutine other than the caller's, and returns when it is over.
// false: f has ended its goroutine (runtime.Goexit). A panic of f ends the
// process, as in any goroutine.
func (c *Crew) Do(f func()) (returned bool) {
	m := c.take()
	m.work <- f
	if returned = <-m.told; returned {
		c.giveBack(m)
	}
	return returned
}

func (c *Crew) take() *member {
	if m := c.waiting(); m != nil {
		return m
	}
	m := &member{work: make(chan func()), told: make(chan bool), gone: make(chan struct{})}
	go m.run() // ended by Close, by giveBack after it, or by a function
	return m
}

func (c *Crew) waiting() *member {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	m := c.idle[n-1] // the one that was busy last
	c.idle = c.idle[:n-1]
	return m
}

func (c *Crew) giveBack(m *member) {
	if c == nil {
		close(m.work)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		close(m.work)
		return
	}
	c.idle = append(c.idle, m)
}

// Close ends the goroutines that have nothing to do, and returns when they have
// ended. Those of functions under way, and of later ones, end with them.
func (c *Crew) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, m := range idle {
		close(m.work)
		<-m.gone
	}
}

func (m *member) run() {
	defer close(m.gone)
	for f := range m.work {
		m.do(f)
	}
}

func (m *member) do(f func()) {
	returned := false
	defer func() { m.told <- returned }()
	f()
	returned = true
}
