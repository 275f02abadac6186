package rocketmq

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// queuesOf is a route as the client gives it: "a2 b1" are two queues of broker
// a and one of b.
func queuesOf(brokers ...string) (list []*primitive.MessageQueue) {
	list = make([]*primitive.MessageQueue, 0, 64) // with room, as the client's has
	for _, b := range brokers {
		var n int
		_, _ = fmt.Sscanf(b[1:], "%d", &n)
		for i := range n {
			list = append(list, &primitive.MessageQueue{Topic: "t", BrokerName: b[:1], QueueId: i})
		}
	}
	return list
}

func names(queues []*primitive.MessageQueue) (list []string) {
	for _, q := range queues {
		list = append(list, fmt.Sprint(q.BrokerName, q.QueueId))
	}
	return list
}

func TestRoster(t *testing.T) {
	t.Parallel()
	s := newSelector()
	for _, step := range []struct {
		what string
		now  []*primitive.MessageQueue
		want []string
	}{
		{"first route", queuesOf("a2", "b1", "c1"), []string{"a0", "a1", "b0", "c0"}},
		{"a broker leaves", queuesOf("a2", "c1"), []string{"a0", "a1", "b0", "c0"}},
		{"and all but one", queuesOf("c1"), []string{"a0", "a1", "b0", "c0"}},
		{"it comes back", queuesOf("a2", "b1", "c1"), []string{"a0", "a1", "b0", "c0"}},
		{"queues are added", queuesOf("a2", "b3", "c1"), []string{"a0", "a1", "b0", "b1", "b2", "c0"}},
		{"queues are taken away", queuesOf("a1", "b3", "c1"), []string{"a0", "b0", "b1", "b2", "c0"}},
		{"a broker is added", queuesOf("a1", "b3", "c1", "d1"), []string{"a0", "b0", "b1", "b2", "c0", "d0"}},
	} {
		given := slices.Clone(step.now)
		for range 2 { // the second time the client gives the same slice
			if got := names(s.roster.full("t", step.now)); !slices.Equal(got, step.want) {
				t.Errorf("%s: queues = %v, want %v", step.what, got, step.want)
			}
		}
		if !slices.Equal(given, step.now) {
			t.Errorf("%s: the client's own list was changed", step.what)
		}
	}
	if got := names(s.roster.full("other", queuesOf("x1"))); !slices.Equal(got, []string{"x0"}) {
		t.Errorf("queues of another topic = %v, want its own", got)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	all := queuesOf("a4", "b4")
	// send is one message in so many tries, each with a new message of the client's.
	send := func(s *selector, key string, routes ...[]*primitive.MessageQueue) (went []string) {
		way := new(trail)
		for _, route := range routes {
			msg := primitive.NewMessage("t", nil)
			msg.WithShardingKey(key)
			s.trails.Store(msg, way)
			went = append(went, names([]*primitive.MessageQueue{s.Select(msg, route, "")})...)
			s.trails.Delete(msg)
		}
		return went
	}
	t.Run("a key stays in its queue", func(t *testing.T) {
		t.Parallel()
		s := newSelector()
		used := map[string]bool{}
		for i := range 100 {
			key := fmt.Sprintf("k%d", i)
			// its broker leaves, queues are added: this message does not move
			went := send(s, key, all, queuesOf("a4"), queuesOf("b4"), queuesOf("a8", "b8"))
			if len(slices.Compact(slices.Clone(went))) != 1 {
				t.Fatalf("tries of key %s went to %v, want one queue", key, went)
			}
			used[went[0]] = true
			s = newSelector()
		}
		if len(used) != len(all) {
			t.Errorf("100 keys went to %d queues, want %d", len(used), len(all))
		}
	})
	t.Run("the next message of the key, with a broker away", func(t *testing.T) {
		t.Parallel()
		s := newSelector()
		for i := range 100 {
			key := fmt.Sprintf("k%d", i)
			was := send(s, key, all)
			for _, route := range [][]*primitive.MessageQueue{queuesOf("a4"), queuesOf("b4"), all} {
				if now := send(s, key, route); now[0] != was[0] {
					t.Fatalf("key %s moved from %v to %v", key, was, now)
				}
			}
		}
	})
	t.Run("by the hash of other Go clients", func(t *testing.T) {
		t.Parallel()
		s, msg := newSelector(), primitive.NewMessage("t", nil)
		msg.WithShardingKey("k")
		if got, want := s.Select(msg, all, ""), s.byKey.Select(msg, all, ""); got != want {
			t.Errorf("queue = %v, want %v", got, want)
		}
	})
	t.Run("without a key, each retry goes to another broker", func(t *testing.T) {
		t.Parallel()
		s := newSelector()
		for range 20 {
			went := send(s, "", all, all, all)
			if went[0][0] == went[1][0] || went[1][0] == went[2][0] {
				t.Fatalf("tries went to %v, want another broker each time", went)
			}
		}
		if went := send(s, "", queuesOf("a1"), queuesOf("a1")); went[1] != "a0" {
			t.Errorf("tries went to %v, want the only broker", went)
		}
	})
}
