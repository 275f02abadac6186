package remoting

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/txmq/txmq"
)

var testKeys = Keys{AccessKey: "who", SecretKey: "very secret"}

func TestSign(t *testing.T) {
	t.Parallel()
	// Worked out by hand: printf 'who' 'v-a' 'v-b' body, in the order AccessKey a b,
	// through openssl dgst -sha1 -hmac 'very secret' -binary | base64.
	const want = "T7chOoQ4t8VQsgKs813teWFwYEs="
	was := map[string]string{"b": "v-b", "a": "v-a", "Signature": "old"}
	fields := maps.Clone(was)
	got := testKeys.Sign(Request(ConsumerSendMsgBack, fields, []byte("body")))
	if got.ExtFields["AccessKey"] != "who" || got.ExtFields["Signature"] != want {
		t.Errorf("Sign = %v, want who and %s", got.ExtFields, want)
	}
	if !maps.Equal(fields, was) {
		t.Errorf("the request's own fields became %v", fields)
	}
	if again := testKeys.Sign(got); again.ExtFields["Signature"] != want {
		t.Errorf("signed twice = %v, want the same signature", again.ExtFields)
	}
	if bare := (Keys{}).Sign(Request(Heartbeat, nil, nil)); len(bare.ExtFields) != 0 {
		t.Errorf("without keys the fields are %v, want none", bare.ExtFields)
	}
}

// TestSignedCalls: every call of a Keys carries its signature, and nothing of
// the secret gets into an error.
func TestSignedCalls(t *testing.T) {
	t.Parallel()
	var asked Frame
	addr := serve(t, func(req Frame) []Frame {
		asked = req
		res := req.Reply(0)
		res.Body = []byte(`{"brokerDatas":[]}`)
		return []Frame{res}
	})
	for name, call := range map[string]func(context.Context) error{
		"Call": func(ctx context.Context) error {
			_, err := testKeys.Call(ctx, addr, Request(Heartbeat, nil, []byte("b")))
			return err
		},
		"Brokers":     func(ctx context.Context) error { _, err := testKeys.Brokers(ctx, addr, "t"); return err },
		"CreateTopic": func(ctx context.Context) error { return testKeys.CreateTopic(ctx, addr, "t", 1, 6) },
	} {
		if err := call(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := testKeys.Sign(asked).ExtFields; !maps.Equal(asked.ExtFields, want) || want["AccessKey"] != "who" {
			t.Errorf("%s sent %v, want %v", name, asked.ExtFields, want)
		}
	}
	if got := fmt.Sprintf("%v %+v %#v", testKeys, testKeys, testKeys); got != `{who [secret]} {AccessKey:who SecretKey:[secret]} remoting.Keys{AccessKey:"who", SecretKey:"[secret]"}` {
		t.Errorf("printed: %s", got)
	}
	if k := KeysOf(txmq.Broker{AccessKey: "a", SecretKey: "s"}); k != (Keys{"a", "s"}) {
		t.Errorf("KeysOf = %v", k)
	}
}
