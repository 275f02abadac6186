package rocketmq

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

// ErrGone: the broker no longer has the message: it was deleted with its file,
// or another one lies there now. From SendBack.
var ErrGone = errors.New("message is gone from the broker")

// SendBackRequest names a stored message and the group that gets a copy.
type SendBackRequest struct {
	// Group is the consumer group. Required.
	Group string

	// Topic is the original one, under which the copy is delivered. Required.
	Topic string

	// OffsetMsgID says where the broker keeps the message: its address, in hex,
	// and the offset in its commit log. Required. A copy that the group was
	// delivered before (in its retry or dead-letter topic) is as good as the
	// message itself.
	OffsetMsgID string

	// BrokerName finds the broker's master of today; the address inside
	// OffsetMsgID may be old. Empty: the master that has that address.
	BrokerName string

	// MsgID, if not empty, must be the stored message's own.
	MsgID string

	// DelayLevel is 1 to 18. Default 1, one second; the broker knows nothing
	// quicker.
	DelayLevel int
}

func (r SendBackRequest) validate() error {
	errs := []error{
		CheckGroup(r.Group, "SendBackRequest.Group"),
		checkTopic(r.Topic, "SendBackRequest.Topic"),
		checkLevel(r.DelayLevel, "SendBackRequest.DelayLevel"),
	}
	if _, err := parsePlace(r.OffsetMsgID); err != nil {
		errs = append(errs, &txmq.FieldError{
			Field: "SendBackRequest.OffsetMsgID", Value: cut(r.OffsetMsgID),
			Want: "32 or 56 hexadecimal digits: host, port, commit-log offset",
		})
	}
	return errors.Join(errs...)
}

// checkTopic is for the original topic of a message that was delivered.
func checkTopic(topic, field string) error {
	if len(topic) > maxTopic || !isName(topic) || isSystemTopic(topic) {
		return &txmq.FieldError{Field: field, Value: cut(topic), Want: "1 to 127 letters, digits, _ - % |, not RocketMQ's own"}
	}
	return nil
}

func checkLevel(level int, field string) error {
	if level < 0 || level > MaxLevel {
		return &txmq.FieldError{Field: field, Value: level, Want: fmt.Sprintf("1 to %d, or 0 for 1", MaxLevel)}
	}
	return nil
}

// SendBack has the broker put a copy of a stored message into the retry topic
// of one group, so that this group, and no other, gets it again: with body,
// tags, keys and properties, its count of deliveries raised by one, under its
// original topic. It takes no consumer of ours, and the group may never have
// started.
//
// It first looks whether the message at that place is the one that is meant, so
// with ACL on it needs the permission to read messages of the topic besides
// that of consuming. Each of its three calls may take 3 s.
//
// Errors wrap ErrGone, txmq.ErrRefused, txmq.ErrBrokerUnreachable (the broker
// may have made the copy all the same), or are *txmq.FieldErrors.
func SendBack(ctx context.Context, b txmq.Broker, req SendBackRequest) error {
	if err := req.validate(); err != nil {
		return err
	}
	at, err := parsePlace(req.OffsetMsgID)
	if err != nil {
		return err
	}
	master, err := masterFor(ctx, b, req.BrokerName, at.addr)
	if err != nil {
		return err
	}
	stored, err := view(ctx, b, master, at.offset, req.Topic)
	if err != nil {
		return err
	}
	if err := req.matches(stored); err != nil {
		return err
	}
	_, err = request(ctx, b, master.Addr, remoting.Request(remoting.ConsumerSendMsgBack, map[string]string{
		"offset":            strconv.FormatInt(at.offset, 10),
		"group":             req.Group,
		"delayLevel":        strconv.Itoa(cmp.Or(req.DelayLevel, 1)),
		"originMsgId":       req.MsgID,
		"originTopic":       req.Topic,
		"unitMode":          "false",
		"maxReconsumeTimes": strconv.Itoa(math.MaxInt32), // beyond it the broker buries the copy
	}, nil))
	return goneAt(err, at.offset, goneFromSendBack)
}

// matches is ErrGone unless the stored message is the one that is meant. The
// store of a broker that was set up anew has other messages at old offsets.
func (r SendBackRequest) matches(m remoting.Stored) error {
	topic := cmp.Or(m.Properties[primitive.PropertyRetryTopic], m.Topic)
	id := m.Properties[primitive.PropertyUniqueClientMessageIdKeyIndex]
	if topic != r.Topic || r.MsgID != "" && id != "" && id != r.MsgID {
		return fmt.Errorf("%w: at its place lies message %q of topic %q", ErrGone, cut(id), cut(topic))
	}
	return nil
}

// view reads the message at an offset of the commit log.
func view(ctx context.Context, b txmq.Broker, master remoting.BrokerAddr, offset int64, topic string) (remoting.Stored, error) {
	res, err := request(ctx, b, master.Addr, remoting.Request(remoting.ViewMessageByID, map[string]string{
		"offset": strconv.FormatInt(offset, 10),
		"topic":  topic, // 5.x asks for it with ACL on
	}, nil))
	if err != nil {
		return remoting.Stored{}, goneAt(err, offset, goneFromView, insideMessage)
	}
	m, err := remoting.DecodeStored(res.Body)
	if err != nil { // inside a message, whose bytes look like one to the broker
		return remoting.Stored{}, fmt.Errorf("%w: no message begins at offset %d", ErrGone, offset)
	}
	return m, nil
}

// What 4.9.7, 5.3.3 and 5.5.0 say, all with code 1, where no message begins.
const (
	goneFromView     = "can not find message by the offset"
	goneFromSendBack = "look message by offset failed"
	// The four bytes at the offset, taken for a length, are negative.
	insideMessage = "java.lang.IllegalArgumentException"
)

// goneAt gives an answer that begins with one of the words its sentinel.
func goneAt(err error, offset int64, words ...string) error {
	var code *CodeError
	if !errors.As(err, &code) || code.Code != remoting.ResSystemError {
		return err
	}
	for _, w := range words {
		if strings.HasPrefix(code.Remark, w) {
			return fmt.Errorf("%w: no message begins at offset %d", ErrGone, offset)
		}
	}
	return err
}

// masterFor asks the name servers for the master with that name, or with that
// address where there is no name.
func masterFor(ctx context.Context, b txmq.Broker, name string, addr netip.AddrPort) (remoting.BrokerAddr, error) {
	masters, err := mastersOf(ctx, b)
	if err != nil {
		return remoting.BrokerAddr{}, err
	}
	i := slices.IndexFunc(masters, func(m remoting.BrokerAddr) bool {
		return name != "" && m.Name == name || name == "" && m.Addr == addr.String()
	})
	if i < 0 {
		return remoting.BrokerAddr{}, fmt.Errorf("%w: no master of broker %q is registered at name server %s",
			txmq.ErrBrokerUnreachable, cmp.Or(cut(name), addr.String()), strings.Join(b.NameServers, ", "))
	}
	return masters[i], nil
}

// place is what an OffsetMsgID says.
type place struct {
	addr   netip.AddrPort
	offset int64
}

// parsePlace reads 4 or 16 bytes of host, 4 of port, 8 of offset, in hex.
func parsePlace(id string) (place, error) {
	const ends = 4 + 8
	raw, err := hex.DecodeString(id)
	if err != nil {
		return place{}, err
	}
	if len(raw) != net.IPv4len+ends && len(raw) != net.IPv6len+ends {
		return place{}, fmt.Errorf("%d bytes", len(raw))
	}
	host, rest := raw[:len(raw)-ends], raw[len(raw)-ends:]
	ip, _ := netip.AddrFromSlice(host)
	port, offset := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint64(rest[4:])
	if port == 0 || port > math.MaxUint16 || offset > math.MaxInt64 {
		return place{}, fmt.Errorf("port %d, offset %d", port, offset)
	}
	return place{addr: netip.AddrPortFrom(ip, uint16(port)), offset: int64(offset)}, nil
}
