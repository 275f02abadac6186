package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/producer"
)

// TestInstances: members of one group with one address and one process ID, as
// pods have that share their node's network. By the client's own naming
// (address@pid) they would be one: one gets all queues or both the same, and one's
// stop ends both.
func TestInstances(t *testing.T) {
	t.Parallel()
	t.Run("B49 two consumers and two producers in one process", func(t *testing.T) {
		t.Parallel()
		w := newBareWorld(t, remoting.Keys{}, testenv.NameServer(t), testenv.Broker(t), 4)
		w.open(t)
		seen := [2]*events{new(events), new(events)}
		for _, e := range seen {
			w.consumer(t, e, func(c *consumer.Config) { c.Observe = e.observe })
		}
		producers := []*producer.Producer{w.producer(t, new(events)), w.producer(t, new(events))}
		distinct(t, w)

		var sent []string
		share := func(e *events) int {
			return len(slices.DeleteFunc(of[txmq.Delivered](e), func(d txmq.Delivered) bool { return d.Outcome != txmq.OutcomeDone }))
		}
		for n := 0; share(seen[0]) == 0 || share(seen[1]) == 0; n += 2 {
			for i, p := range producers {
				sent = append(sent, fmt.Sprintf("%03d", n+i))
				w.send(t, p, sent[n+i])
			}
			w.settled(t, sent...)
		}
	})

	t.Run("B49 two containers, each process is number 1", func(t *testing.T) {
		t.Parallel()
		w := newBareWorld(t, remoting.Keys{}, testenv.NameServer(t), testenv.Broker(t), 4)
		w.open(t)
		children := []*child{contained(t, w), contained(t, w)}
		distinct(t, w)

		var sent []string
		for n := 0; children[0].fresh("") == 0 || children[1].fresh("") == 0; n += 2 {
			for i, c := range children {
				sent = append(sent, fmt.Sprintf("%03d", n+i))
				c.do(t, sending(sent[n+i]))
			}
			w.settled(t, sent...)
		}
		for _, c := range children {
			c.stop(t)
		}
	})
}

// contained is a worker that is process 1 of a PID namespace, which takes a
// privilege, or a user namespace where one is free for all.
func contained(t *testing.T, w *world) *child {
	t.Helper()
	bin := build(t, workerPkg, faultTag)
	for _, flags := range []uintptr{syscall.CLONE_NEWPID, syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER} {
		attr := &syscall.SysProcAttr{Cloneflags: flags}
		try := exec.Command("sh", "-c", "exit $(($$ - 1))") // its own number
		try.SysProcAttr = attr
		err := try.Run()
		if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EINVAL) {
			continue
		}
		must(t, err)
		cmd := exec.Command(bin)
		cmd.SysProcAttr = attr
		c := w.start(t, cmd, w.setup(tracked))
		c.ready(t)
		return c
	}
	const text = "this system gives no PID namespace, neither to this user nor to all"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return nil
}

// distinct waits until the broker knows two members of each group, and says
// that they have one address.
func distinct(t *testing.T, w *world) {
	t.Helper()
	const producers, consumers = 204, 203 // requests: connections of a group
	for code, header := range map[int]map[string]string{
		consumers: {"consumerGroup": w.group},
		producers: {"producerGroup": w.senders, "topic": w.topic},
	} {
		w.until(t, fmt.Sprintf("two members (request %d)", code), func() (bool, string) {
			ids, err := clientIDs(w, code, header)
			if len(ids) != 2 {
				return false, fmt.Sprint(ids, err)
			}
			a, _, _ := strings.Cut(ids[0], "@")
			b, _, _ := strings.Cut(ids[1], "@")
			if ids[0] == ids[1] || a != b {
				t.Errorf("client IDs = %q, want two of one address", ids)
			}
			return true, ""
		})
	}
}

func clientIDs(w *world, code int, header map[string]string) (ids []string, err error) {
	broker, err := remoting.Brokers(w.ctx, w.ns, w.topic)
	if err != nil {
		return nil, err
	}
	res, err := remoting.Call(w.ctx, broker[0].Addr, remoting.Request(code, header, nil))
	if err != nil {
		return nil, err
	}
	var body struct {
		ConnectionSet []struct{ ClientID string }
	}
	err = json.Unmarshal(res.Body, &body)
	for _, c := range body.ConnectionSet {
		ids = append(ids, c.ClientID)
	}
	return ids, err
}
