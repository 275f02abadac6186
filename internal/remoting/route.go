package remoting

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BrokerAddr says where a broker listens.
type BrokerAddr struct {
	Name string // of the broker, shared by a master and its replicas
	Addr string // host:port
}

// Brokers asks the name server, host:port, which brokers hold the topic, one
// address each: the master's, or the replica's with the lowest number while
// there is no master. Sorted by name. A topic without a route is a *CodeError
// with ResTopicNotExist.
func (k Keys) Brokers(ctx context.Context, nameServer, topic string) ([]BrokerAddr, error) {
	res, err := k.Call(ctx, nameServer, Request(GetRouteInfoByTopic, map[string]string{"topic": topic}, nil))
	if err != nil {
		return nil, err
	}
	var route struct{ BrokerDatas []brokerData }
	if err := json.Unmarshal(quoteKeys(res.Body), &route); err != nil {
		return nil, fmt.Errorf("remoting: route of %s: %w", topic, err)
	}
	var brokers []BrokerAddr
	for _, b := range route.BrokerDatas {
		best := int64(-1)
		for id := range b.BrokerAddrs {
			if best < 0 || id < best {
				best = id
			}
		}
		if best >= 0 {
			brokers = append(brokers, BrokerAddr{Name: b.BrokerName, Addr: b.BrokerAddrs[best]})
		}
	}
	slices.SortFunc(brokers, byName)
	return brokers, nil
}

// brokerData is how a name server lists a broker: addresses by number, 0 is the
// master.
type brokerData struct {
	BrokerName  string
	BrokerAddrs map[int64]string
}

func byName(a, b BrokerAddr) int { return cmp.Compare(a.Name, b.Name) }

// Masters asks the name server, host:port, for the masters that are registered
// now. Sorted by name. A broker that has only replicas left is not among them.
func (k Keys) Masters(ctx context.Context, nameServer string) ([]BrokerAddr, error) {
	res, err := k.Call(ctx, nameServer, Request(GetBrokerClusterInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	var cluster struct {
		BrokerAddrTable map[string]brokerData
	}
	if err := json.Unmarshal(quoteKeys(res.Body), &cluster); err != nil {
		return nil, fmt.Errorf("remoting: brokers of %s: %w", nameServer, err)
	}
	var masters []BrokerAddr
	for name, b := range cluster.BrokerAddrTable {
		if addr := b.BrokerAddrs[0]; addr != "" {
			masters = append(masters, BrokerAddr{Name: name, Addr: addr})
		}
	}
	slices.SortFunc(masters, byName)
	return masters, nil
}

// CreateTopic makes the topic on one broker, or changes it, with as many read
// as write queues. perm is 6 for reading and writing, 4 for reading, 2 for
// writing. The name server may learn it a moment later than this returns.
func (k Keys) CreateTopic(ctx context.Context, brokerAddr, topic string, queues, perm int) error {
	_, err := k.Call(ctx, brokerAddr, Request(UpdateAndCreateTopic, map[string]string{
		"topic":           topic,
		"defaultTopic":    "TBW102",
		"readQueueNums":   strconv.Itoa(queues),
		"writeQueueNums":  strconv.Itoa(queues),
		"perm":            strconv.Itoa(perm),
		"topicFilterType": "SINGLE_TAG",
		"topicSysFlag":    "0",
		"order":           "false",
	}, nil))
	return err
}

// RewriteAddrs replaces every broker address in the body of a response to
// GetRouteInfoByTopic or GetBrokerClusterInfo with what to makes of it, and
// leaves every other byte as it is. to is called once per address, in the
// order of the addresses.
func RewriteAddrs(body []byte, to func(addr string) (string, error)) ([]byte, error) {
	var v any
	if err := json.Unmarshal(quoteKeys(body), &v); err != nil {
		return nil, fmt.Errorf("remoting: broker addresses: %w", err)
	}
	found := addrsIn(v)
	slices.Sort(found)
	var pairs []string
	for _, addr := range slices.Compact(found) {
		other, err := to(addr)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, strconv.Quote(addr), strconv.Quote(other))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(body))), nil
}

// addrsIn collects the values of every object named brokerAddrs.
func addrsIn(v any) (found []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			found = append(found, addrsIn(e)...)
		}
	case map[string]any:
		for name, e := range v {
			addrs, ok := e.(map[string]any)
			if name != "brokerAddrs" || !ok {
				found = append(found, addrsIn(e)...)
				continue
			}
			for _, a := range addrs {
				if s, ok := a.(string); ok {
					found = append(found, s)
				}
			}
		}
	}
	return found
}

// quoteKeys makes JSON of what fastjson writes: a map with integer keys comes
// as {0:"127.0.0.1:10911"}. Strings are copied as they are.
func quoteKeys(b []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(b) + 16)
	for len(b) > 0 {
		n := 1
		switch c := b[0]; {
		case c == '"':
			n = stringLen(b)
			out.Write(b[:n])
		case c == '-' || c >= '0' && c <= '9':
			n = numberLen(b)
			if rest := bytes.TrimLeft(b[n:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				fmt.Fprintf(&out, "%q", b[:n])
			} else {
				out.Write(b[:n])
			}
		default:
			out.WriteByte(c)
		}
		b = b[n:]
	}
	return out.Bytes()
}

// stringLen is the length of the JSON string that b begins with, quotes
// included, or all of b if it has no end.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

func numberLen(b []byte) int {
	n := 1
	for n < len(b) && (b[n] >= '0' && b[n] <= '9' || strings.IndexByte("+-.eE", b[n]) >= 0) {
		n++
	}
	return n
}
