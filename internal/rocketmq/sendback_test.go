package rocketmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"7F00000100002A9F00000000000004D2":                         "127.0.0.1:10911 1234",
		"7f00000100002a9f7fffffffffffffff":                         "127.0.0.1:10911 9223372036854775807",
		"20010DB800000000000000000000000100002A9F0000000000000001": "[2001:db8::1]:10911 1",
		"":                                   "",
		"7F00000100002A9F00000000000004D":    "", // odd
		"7F00000100002A9F00000000000004":     "", // short
		"7F00000100002A9F00000000000004D2A0": "", // long
		"7F00000100002A9F80000000000004D2":   "", // beyond any commit log
		"7F00000100012A9F00000000000004D2":   "", // port of 17 bits
		"7F0000010000000000000000000004D2":   "", // port 0
		"7F00000100002A9F00000000000004DG":   "",
	} {
		p, err := parsePlace(id)
		if got := fmt.Sprintf("%v %d", p.addr, p.offset); want != "" && (err != nil || got != want) {
			t.Errorf("parsePlace(%s) = %s, %v; want %s", id, got, err, want)
		}
		if want == "" && err == nil {
			t.Errorf("parsePlace(%s) = %v, want an error", id, p)
		}
	}
}

func TestSendBackFields(t *testing.T) {
	t.Parallel()
	err := SendBack(t.Context(), at("127.0.0.1:1"), SendBackRequest{Topic: "%RETRY%g", OffsetMsgID: "x", DelayLevel: 19})
	if diff := cmp.Diff([]string{
		"SendBackRequest.Group", "SendBackRequest.Topic", "SendBackRequest.DelayLevel", "SendBackRequest.OffsetMsgID",
	}, fields(t, err)); diff != "" {
		t.Errorf("SendBack (-want +got):\n%s", diff)
	}
	_, err = (&Sender{}).Republish(t.Context(), RepublishRequest{
		Topic: "SCHEDULE_TOPIC_XXXX", DelayLevel: -1, Properties: map[string]string{"a\x01b": "c", "d": "secret\x02"},
	})
	if diff := cmp.Diff([]string{
		"RepublishRequest.Group", "RepublishRequest.Topic", "RepublishRequest.DelayLevel",
		`RepublishRequest.Properties["a\x01b"]`, `RepublishRequest.Properties["d"]`,
	}, fields(t, err)); diff != "" || strings.Contains(err.Error(), "secret") {
		t.Errorf("Republish = %v (-want +got):\n%s", err, diff)
	}
}

// oneMessage is a stored message, as short as they get.
func oneMessage(topic, props string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint32(b, 0xDAA320A7)
	b = append(b, make([]byte, 84-8)...)
	b = append(binary.BigEndian.AppendUint32(b, 0), byte(len(topic)))
	b = append(b, topic...)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(props))), props...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// fakeCluster has two brokers, both at b's address. What it is asked must be
// signed with the keys.
func fakeCluster(t *testing.T, b *fakeBroker, keys remoting.Keys, answer func(remoting.Frame) remoting.Frame) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = func(req remoting.Frame) remoting.Frame {
		if signed := keys.Sign(req); !cmp.Equal(signed.ExtFields, req.ExtFields) {
			t.Errorf("request %d is not signed: %v", req.Code, req.ExtFields)
		}
		if req.Code != remoting.GetBrokerClusterInfo {
			return answer(req)
		}
		res := req.Reply(remoting.ResSuccess)
		res.Body = fmt.Appendf(nil, `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:%q}},"broker-b":{"brokerAddrs":{0:%q}}}}`, b.addr, b.addr)
		return res
	}
}

func TestSendBackCalls(t *testing.T) {
	t.Parallel()
	good := SendBackRequest{Group: "g", Topic: "t", OffsetMsgID: "7F00000100002A9F00000000000004D2", BrokerName: "broker-b", MsgID: "id"}
	for name, c := range map[string]struct {
		topic, props       string
		view, back         int
		viewSays, backSays string
		want               error
	}{
		"the message":           {topic: "t", props: "UNIQ_KEY\x01id\x02"},
		"a message without ID":  {topic: "t"},
		"its retry":             {topic: "%RETRY%g", props: "RETRY_TOPIC\x01t\x02UNIQ_KEY\x01id\x02"},
		"another ID":            {topic: "t", props: "UNIQ_KEY\x01other\x02", want: ErrGone},
		"another topic":         {topic: "x", want: ErrGone},
		"another topic's retry": {topic: "t", props: "RETRY_TOPIC\x01x\x02", want: ErrGone},
		"no message":            {topic: "", want: ErrGone},
		"no permission to look": {topic: "t", view: remoting.ResNoPermission, want: txmq.ErrRefused},
		"a bad signature":       {topic: "t", view: remoting.ResSystemError, viewSays: "org.apache.rocketmq.acl.common.AclException: Check signature failed", want: txmq.ErrRefused},
		"an upset broker":       {topic: "t", view: remoting.ResSystemError, viewSays: "java.lang.NullPointerException", want: txmq.ErrBrokerUnreachable},
		"a busy broker":         {topic: "t", back: remoting.ResSystemBusy, want: txmq.ErrBrokerUnreachable},
		"no group":              {topic: "t", back: remoting.ResGroupNotExist, want: txmq.ErrRefused},
		"gone in between":       {topic: "t", back: remoting.ResSystemError, backSays: "look message by offset failed, 1234", want: ErrGone},
		"an odd group":          {topic: "t", back: remoting.ResSystemError, backSays: "java.lang.IllegalArgumentException", want: txmq.ErrBrokerUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFakeBroker(t)
			var asked []remoting.Frame
			broker := txmq.Broker{NameServers: []string{"127.0.0.1:1", b.addr}, AccessKey: "who", SecretKey: "s3cret"}
			fakeCluster(t, b, remoting.KeysOf(broker), func(req remoting.Frame) remoting.Frame {
				asked = append(asked, req)
				res := req.Reply(c.back)
				res.Remark = c.backSays
				if req.Code == remoting.ViewMessageByID {
					res = req.Reply(c.view)
					res.Remark, res.Body = c.viewSays, oneMessage(c.topic, c.props)
				}
				return res
			})
			err := SendBack(t.Context(), broker, good)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("SendBack = %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			got := asked[len(asked)-1]
			delete(got.ExtFields, "AccessKey")
			delete(got.ExtFields, "Signature")
			if diff := cmp.Diff(map[string]string{
				"offset": "1234", "group": "g", "delayLevel": "1", "originMsgId": "id", "originTopic": "t", "unitMode": "false",
				"maxReconsumeTimes": "2147483647",
			}, got.ExtFields); diff != "" || got.Code != remoting.ConsumerSendMsgBack {
				t.Errorf("code %d, fields (-want +got):\n%s", got.Code, diff)
			}
		})
	}
}

func TestSubscriptionsOfTwoBrokers(t *testing.T) {
	t.Parallel()
	b := newFakeBroker(t)
	n := 0
	fakeCluster(t, b, remoting.Keys{}, func(req remoting.Frame) remoting.Frame {
		if n++; n%2 == 0 {
			return req.Reply(remoting.ResNoPermission)
		}
		res := req.Reply(remoting.ResSuccess)
		res.Body = []byte(`{"connectionSet":[{"clientId":"b","language":"JAVA","version":401},{"clientId":"a","language":"GO","clientAddr":"1.2.3.4:5"}],
			"consumeType":"CONSUME_ACTIVELY","messageModel":"BROADCASTING","subscriptionTable":{
			"t":{"expressionType":"SQL92","subString":"a > 1","tagsSet":[]},"u":{"subString":"*"},"%RETRY%g":{"subString":"*"}}}`)
		return res
	})
	live, err := Subscriptions(t.Context(), at(b.addr), "g")
	if !errors.Is(err, txmq.ErrRefused) || !strings.Contains(err.Error(), "broker-b") {
		t.Errorf("Subscriptions = %v, want ErrRefused of broker-b", err)
	}
	want := []LiveGroup{{
		BrokerName: "broker-a", Pull: true, Broadcasting: true,
		Clients: []LiveClient{{ID: "a", Addr: "1.2.3.4:5", Language: "GO"}, {ID: "b", Language: "JAVA", Version: 401}},
		Topics:  map[string]Filter{"t": {Type: "SQL92", Expression: "a > 1", Tags: []string{}}, "u": {Type: "TAG", Expression: "*"}},
	}}
	if diff := cmp.Diff(want, live); diff != "" {
		t.Errorf("Subscriptions (-want +got):\n%s", diff)
	}
	if _, err := Subscriptions(t.Context(), at(b.addr), ""); err == nil {
		t.Error("Subscriptions of no group = nil, want an error")
	}
}
