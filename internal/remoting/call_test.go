package remoting

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serve answers one connection at a time with what answer returns, nothing
// when that is nil, until the test ends.
func serve(t *testing.T, answer func(Frame) []Frame) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			for req, err := Read(conn, MaxFrame); err == nil; req, err = Read(conn, MaxFrame) {
				answers := answer(req)
				if answers == nil {
					break
				}
				for _, res := range answers {
					if err := res.Write(conn); err != nil {
						t.Errorf("fake server: %v", err)
					}
				}
			}
			_ = conn.Close()
		}
	}()
	return ln.Addr().String()
}

func TestCall(t *testing.T) {
	t.Parallel()
	t.Run("takes the response with its own opaque", func(t *testing.T) {
		t.Parallel()
		addr := serve(t, func(req Frame) []Frame {
			other, own := req.Reply(0), req.Reply(0)
			other.Opaque, own.Body = req.Opaque+1, []byte("own")
			notice := Request(NotifyConsumerIDsChanged, nil, nil)
			notice.Opaque = req.Opaque
			return []Frame{other, notice, own}
		})
		res, err := Call(t.Context(), addr, Request(ViewMessageByID, nil, nil))
		if err != nil || string(res.Body) != "own" {
			t.Errorf("Call = %q, %v, want own", res.Body, err)
		}
	})
	t.Run("returns response and code when refused", func(t *testing.T) {
		t.Parallel()
		addr := serve(t, func(req Frame) []Frame {
			res := req.Reply(ResSystemError)
			res.Remark, res.ExtFields["k"] = "no such offset", "v"
			return []Frame{res}
		})
		res, err := Call(t.Context(), addr, Request(ConsumerSendMsgBack, nil, nil))
		var ce *CodeError
		if !errors.As(err, &ce) || *ce != (CodeError{ResSystemError, "no such offset"}) {
			t.Errorf("Call = %v, want code 1", err)
		}
		if res.ExtFields["k"] != "v" {
			t.Errorf("Call = %+v, want the response beside the error", res)
		}
		if err != nil && !strings.Contains(err.Error(), "CODE: 1, DESC: no such offset") {
			t.Errorf("text = %q", err)
		}
	})
	t.Run("ends with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		cause := errors.New("enough")
		addr := serve(t, func(Frame) []Frame {
			cancel(cause)
			return []Frame{}
		})
		if _, err := Call(ctx, addr, Request(Heartbeat, nil, nil)); !errors.Is(err, cause) {
			t.Errorf("Call = %v, want %v", err, cause)
		}
	})
	t.Run("tells a cut connection", func(t *testing.T) {
		t.Parallel()
		addr := serve(t, func(Frame) []Frame { return nil })
		if _, err := Call(t.Context(), addr, Request(Heartbeat, nil, nil)); err == nil {
			t.Error("Call = nil, want an error")
		}
	})
	t.Run("refuses a one-way request before it dials", func(t *testing.T) {
		t.Parallel()
		req := Request(EndTransaction, nil, nil)
		req.Flag = FlagOneWay
		if _, err := Call(t.Context(), "127.0.0.1:0", req); err == nil || !strings.Contains(err.Error(), "answered") {
			t.Errorf("Call = %v, want a refusal", err)
		}
	})
}

// route is fastjson's: integer keys without quotes, and text that looks so.
const route = `{"brokerDatas":[
 {"brokerAddrs":{1:"10.0.0.2:10911",0:"10.0.0.1:10911"},"brokerName":"b, 1:\"x","cluster":"c"},
 {"brokerAddrs":{"2":"10.0.0.4:10911","1" : "10.0.0.3:10911"},"brokerName":"a","cluster":"c","zone":{-3 :true}}],
 "filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0}],"n":[1,-2.5e3]}`

func TestBrokers(t *testing.T) {
	t.Parallel()
	var asked Frame
	addr := serve(t, func(req Frame) []Frame {
		asked = req
		res := req.Reply(0)
		res.Body = []byte(route)
		if req.ExtFields["topic"] == "gone" {
			res.Code, res.Body = ResTopicNotExist, nil
		}
		if req.ExtFields["topic"] == "odd" {
			res.Body = []byte(`{"brokerDatas":`)
		}
		return []Frame{res}
	})
	want := []BrokerAddr{{"a", "10.0.0.3:10911"}, {`b, 1:"x`, "10.0.0.1:10911"}}
	for range 20 { // the addresses of a broker come in no order
		got, err := Brokers(t.Context(), addr, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Brokers (-want +got):\n%s", diff)
		}
	}
	if asked.Code != GetRouteInfoByTopic || asked.ExtFields["topic"] != "orders" {
		t.Errorf("asked = %+v", asked)
	}
	var ce *CodeError
	if _, err := Brokers(t.Context(), addr, "gone"); !errors.As(err, &ce) || ce.Code != ResTopicNotExist {
		t.Errorf("Brokers of no topic = %v, want code 17", err)
	}
	if _, err := Brokers(t.Context(), addr, "odd"); err == nil {
		t.Error("Brokers of a cut body = nil, want an error")
	}
}

func TestMasters(t *testing.T) {
	t.Parallel()
	body := `{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b","cluster":"c"},` +
		`"a":{"brokerAddrs":{0:"10.0.0.3:10911"}},"orphan":{"brokerAddrs":{1:"10.0.0.4:10911"}}},"clusterAddrTable":{"c":["a","b"]}}`
	addr := serve(t, func(req Frame) []Frame {
		res := req.Reply(0)
		res.Body = []byte(body)
		return []Frame{res}
	})
	got, err := (Keys{}).Masters(t.Context(), addr)
	if diff := cmp.Diff([]BrokerAddr{{"a", "10.0.0.3:10911"}, {"b", "10.0.0.1:10911"}}, got); err != nil || diff != "" {
		t.Errorf("Masters: %v, (-want +got):\n%s", err, diff)
	}
	body = `{"brokerAddrTable":`
	if _, err := (Keys{}).Masters(t.Context(), addr); err == nil {
		t.Error("Masters of a cut body = nil, want an error")
	}
}

func TestCreateTopic(t *testing.T) {
	t.Parallel()
	var asked Frame
	addr := serve(t, func(req Frame) []Frame {
		asked = req
		return []Frame{req.Reply(0)}
	})
	if err := CreateTopic(t.Context(), addr, "%RETRY%g", 1, 6); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"topic": "%RETRY%g", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
		"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}
	if diff := cmp.Diff(want, asked.ExtFields); diff != "" || asked.Code != UpdateAndCreateTopic {
		t.Errorf("code %d, fields (-want +got):\n%s", asked.Code, diff)
	}
}

func TestRewriteAddrs(t *testing.T) {
	t.Parallel()
	swap := map[string]string{"10.0.0.1:10911": "10.0.0.2:10911", "10.0.0.2:10911": "10.0.0.1:10911"}
	to := func(a string) (string, error) {
		if b, ok := swap[a]; ok {
			return b, nil
		}
		return a, nil
	}
	got, err := RewriteAddrs([]byte(route), to)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("0.1:", "0.2:", "0.2:", "0.1:").Replace(route)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("RewriteAddrs (-want +got):\n%s", diff)
	}

	cluster := `{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1"},"brokerName":"h:1x"}},"clusterAddrTable":{"c":["a"]}}`
	got, err = RewriteAddrs([]byte(cluster), func(a string) (string, error) { return a + "9", nil })
	if want := strings.Replace(cluster, `"h:1"`, `"h:19"`, 1); err != nil || string(got) != want {
		t.Errorf("RewriteAddrs = %s, %v, want %s", got, err, want)
	}

	refusal := errors.New("no")
	if _, err := RewriteAddrs([]byte(cluster), func(string) (string, error) { return "", refusal }); !errors.Is(err, refusal) {
		t.Errorf("RewriteAddrs = %v, want %v", err, refusal)
	}
	if _, err := RewriteAddrs([]byte(`{1`), to); err == nil {
		t.Error("RewriteAddrs of no JSON = nil, want an error")
	}
}

// FuzzQuoteKeys: JSON stays as it is, byte for byte.
func FuzzQuoteKeys(f *testing.F) {
	for _, s := range []string{`{"a":"\"1:","b":[1,2.5e-3]}`, `{0:"h:1",-1 : 2}`, `"\`, `{"`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		once := quoteKeys(b)
		if twice := quoteKeys(once); !slices.Equal(once, twice) {
			t.Fatalf("quoteKeys twice = %q, want %q", twice, once)
		}
	})
}
