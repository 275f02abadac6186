package rocketmq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

// LiveGroup is a consumer group with live members, as one broker sees it. The
// broker keeps one subscription a group: that of the last heart-beat.
type LiveGroup struct {
	BrokerName string

	// Clients are those that have a connection to the broker now, by ID.
	Clients []LiveClient

	// Pull: the members fetch for themselves, and a re-driven message is theirs
	// only if they read the retry topic. False: push consumers.
	Pull bool

	// Broadcasting: each member gets each message, and there is no retry topic.
	Broadcasting bool

	// Topics is what the group subscribes to, its retry topic left out.
	Topics map[string]Filter
}

// LiveClient is one member's connection.
type LiveClient struct {
	ID       string
	Addr     string // ip:port of its end
	Language string // RocketMQ's name: "GO", "JAVA", "CPP", ...
	Version  int
}

// Filter is what a group wants of a topic.
type Filter struct {
	Type       string   // "TAG" or "SQL92"
	Expression string   // as the member wrote it: "*", "a || b"
	Tags       []string // of a TAG expression, sorted; empty for all
}

// Subscriptions asks the master of every broker for the live members of a
// consumer group and what they subscribe to. A broker that knows of none is
// left out, so a group without live members is an empty answer. Where members
// differ, the broker shows one of them, now this, now that.
//
// A broker that could not be asked is an error, beside what the others said; it
// wraps txmq.ErrBrokerUnreachable, or txmq.ErrRefused.
func Subscriptions(ctx context.Context, b txmq.Broker, group string) ([]LiveGroup, error) {
	if err := CheckGroup(group, "group"); err != nil {
		return nil, err
	}
	masters, err := mastersOf(ctx, b)
	if err != nil {
		return nil, err
	}
	var live []LiveGroup
	var errs []error
	for _, m := range masters {
		g, err := liveGroup(ctx, b, m, group)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("broker %s: %w", m.Name, err))
		case len(g.Clients) > 0:
			live = append(live, g)
		}
	}
	return live, errors.Join(errs...)
}

// liveGroup is empty if the broker knows of no member.
func liveGroup(ctx context.Context, b txmq.Broker, m remoting.BrokerAddr, group string) (LiveGroup, error) {
	res, err := request(ctx, b, m.Addr, remoting.Request(remoting.GetConsumerConnectionList,
		map[string]string{"consumerGroup": group}, nil))
	var code *CodeError
	if errors.As(err, &code) && code.Code == remoting.ResConsumerNotOnline {
		return LiveGroup{}, nil
	}
	if err != nil {
		return LiveGroup{}, err
	}
	var said struct {
		ConnectionSet []struct {
			ClientID   string `json:"clientId"`
			ClientAddr string
			Language   string
			Version    int
		}
		ConsumeType       string
		MessageModel      string
		SubscriptionTable map[string]struct {
			ExpressionType string
			SubString      string
			TagsSet        []string
		}
	}
	if err := json.Unmarshal(res.Body, &said); err != nil {
		return LiveGroup{}, fmt.Errorf("rocketmq: connections of group %s: %w", group, err)
	}
	g := LiveGroup{
		BrokerName:   m.Name,
		Pull:         said.ConsumeType == "CONSUME_ACTIVELY",
		Broadcasting: said.MessageModel == "BROADCASTING",
		Topics:       map[string]Filter{},
	}
	for _, c := range said.ConnectionSet {
		g.Clients = append(g.Clients, LiveClient{ID: c.ClientID, Addr: c.ClientAddr, Language: c.Language, Version: c.Version})
	}
	slices.SortFunc(g.Clients, func(a, b LiveClient) int { return cmp.Compare(a.ID, b.ID) })
	for topic, s := range said.SubscriptionTable {
		if !strings.HasPrefix(topic, retryPrefix) {
			slices.Sort(s.TagsSet)
			g.Topics[topic] = Filter{Type: cmp.Or(s.ExpressionType, "TAG"), Expression: s.SubString, Tags: s.TagsSet}
		}
	}
	return g, nil
}
