package rocketmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
	"github.com/txmq/txmq/internal/testenv"
)

// guarded is a broker with ACL on, and who may do what there.
type guarded struct {
	bundle
	version     string
	admin, user txmq.Broker // user may publish to the topic and consume it with the group, no more
}

const usersSecret = "the-users-own-secret"

// onGuarded runs a test on each version with ACL on.
func onGuarded(t *testing.T, name string, test func(*testing.T, *guarded)) {
	t.Helper()
	for _, v := range []string{"4.9.7", "5.5.0"} {
		t.Run(name+" on "+v, func(t *testing.T) {
			t.Parallel()
			a := testenv.ACL(t, v)
			g := &guarded{version: v}
			g.admin = txmq.Broker{NameServers: []string{a.NameServer}, AccessKey: a.AdminKey, SecretKey: txmq.Secret(a.AdminSecret)}
			g.bundle = bundle{ns: a.NameServer, broker: a.Broker, keys: remoting.KeysOf(g.admin)}
			g.topic = fmt.Sprintf("acl-%d-%d", time.Now().UnixMilli(), serial.Add(1))
			g.group = "g-" + g.topic
			g.makeTopic(t, g.topic)
			g.user = g.account(t, "user", map[string]string{"Topic:" + g.topic: "Pub Sub", "Group:" + g.group: "Sub"})
			test(t, g)
		})
	}
}

// account makes one. Rights are in 5.x's words, with a space between; 4.x knows
// Pub and Sub only.
func (g *guarded) account(t *testing.T, name string, rights map[string]string) txmq.Broker {
	t.Helper()
	b := txmq.Broker{NameServers: []string{g.ns}, AccessKey: name + "-" + g.topic, SecretKey: usersSecret}
	if g.version[0] == '4' {
		g.account4(t, b.AccessKey, rights)
	} else {
		g.account5(t, b.AccessKey, rights)
	}
	return b
}

func (g *guarded) account4(t *testing.T, key string, rights map[string]string) {
	t.Helper()
	fields := map[string]string{
		"accessKey": key, "secretKey": usersSecret, "admin": "false", "defaultTopicPerm": "DENY", "defaultGroupPerm": "DENY",
	}
	for _, what := range slices.Sorted(maps.Keys(rights)) {
		kind, name, _ := strings.Cut(what, ":")
		field := map[string]string{"Topic": "topicPerms", "Group": "groupPerms"}[kind]
		perms := slices.DeleteFunc(strings.Fields(strings.ToUpper(rights[what])), func(r string) bool { return r != "PUB" && r != "SUB" })
		if len(perms) == 0 {
			continue
		}
		if old := fields[field]; old != "" {
			fields[field] = old + ","
		}
		fields[field] += name + "=" + strings.Join(perms, "|")
	}
	g.do(t, remoting.Request(remoting.UpdateAndCreateACLConfig, fields, nil))
}

func (g *guarded) account5(t *testing.T, key string, rights map[string]string) {
	t.Helper()
	type m map[string]any
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	g.do(t, remoting.Request(remoting.AuthCreateUser, map[string]string{"username": key},
		encode(m{"username": key, "password": usersSecret, "userType": "Normal"})))
	var entries []m
	for what, actions := range rights {
		entries = append(entries, m{"resource": what, "actions": strings.Fields(actions), "decision": "Allow"})
	}
	if len(entries) > 0 {
		subject := "User:" + key
		g.do(t, remoting.Request(remoting.AuthCreateACL, map[string]string{"subject": subject},
			encode(m{"subject": subject, "policies": []m{{"policyType": "Custom", "entries": entries}}})))
	}
}

// do is the administrator's.
func (g *guarded) do(t *testing.T, req remoting.Frame) {
	t.Helper()
	if _, err := g.keys.Call(t.Context(), g.broker, req); err != nil {
		t.Fatal(err)
	}
}

func (g *guarded) by(b txmq.Broker) func(*PushConfig) {
	return func(c *PushConfig) { c.Broker = b }
}

func TestACL(t *testing.T) {
	t.Parallel()
	onGuarded(t, "the keys reach every request", func(t *testing.T, g *guarded) {
		writer := g.account(t, "writer", map[string]string{"Topic:" + g.topic: "Pub"})
		reader := g.account(t, "reader", map[string]string{"Topic:" + g.topic: "Sub", "Group:" + g.group: "Sub Create"})
		returner := g.account(t, "returner", map[string]string{"Topic:" + g.topic: "Get Sub", "Group:" + g.group: "Sub"})
		lister := g.account(t, "lister", map[string]string{"Group:" + g.group: "Get"})
		if g.version[0] == '4' {
			g.makeTopic(t, retryPrefix+g.group) // only an administrator may
		}
		asked, check := askedFor()
		p := startTx(t, TxConfig{Broker: writer, Group: "p-" + g.group, Topics: []string{g.topic}, Check: check})
		for _, e := range []struct {
			event string
			v     txmq.Verdict
		}{{"committed", txmq.Commit}, {"checked", txmq.Unknown}} {
			r, err := p.SendHalf(t.Context(), message(g.topic, e.event), nil, func(Half) txmq.Verdict { return e.v })
			if err != nil || !r.Ran {
				t.Fatalf("SendHalf = %+v, %v", r, err)
			}
		}
		if got := receive(t, asked, "check"); got != "checked" {
			t.Errorf("asked about %s", got)
		}
		seen := make(chan *primitive.MessageExt, 100)
		g.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- m
			if m.ReconsumeTimes == 0 {
				return Result{}
			}
			return Result{Kind: Ack}
		}, g.by(reader))
		var last *primitive.MessageExt
		for retried := map[string]bool{}; len(retried) < 2; {
			if last = receive(t, seen, "delivery"); last.ReconsumeTimes > 0 {
				retried[event(last)] = true
			}
		}
		again := SendBackRequest{Group: g.group, Topic: g.topic, OffsetMsgID: last.OffsetMsgId, MsgID: last.MsgId}
		if g.version[0] == '5' { // where to look at a message and at a group is a right of its own
			_, err := Subscriptions(t.Context(), reader, g.group)
			for what, err := range map[string]error{"SendBack": SendBack(t.Context(), reader, again), "Subscriptions": err} {
				if !errors.Is(err, txmq.ErrRefused) {
					t.Errorf("%s = %v, want %v", what, err, txmq.ErrRefused)
				}
			}
		}
		if err := SendBack(t.Context(), returner, again); err != nil {
			t.Errorf("SendBack = %v", err)
		}
		if m := receive(t, seen, "copy"); event(m) != event(last) || m.ReconsumeTimes != 2 {
			t.Errorf("copy of %s with count %d, want %s with 2", event(m), m.ReconsumeTimes, event(last))
		}
		live, err := Subscriptions(t.Context(), lister, g.group)
		if err != nil || len(live) != 1 || len(live[0].Clients) != 1 {
			t.Errorf("Subscriptions = %+v, %v; want one client", live, err)
		}
	})
	onGuarded(t, "dead letters, by who may", func(t *testing.T, g *guarded) {
		dlq, readers := "%DLQ%"+g.group, "TXMQ_DLQ_db_"+g.group
		g.makeTopic(t, dlq)
		g.makeTopic(t, retryPrefix+readers) // as the table of rights in docs/interop.md advises
		intake := func(c *PushConfig) { c.Group, c.Subscriptions = readers, []Subscription{{Topic: dlq}} }
		for who, rights := range map[string]map[string]string{
			"no-topic": {"Group:" + readers: "Sub"},
			"no-group": {"Topic:" + dlq: "Sub"},
		} {
			c, err := NewPushConsumer(PushConfig{
				Broker: g.account(t, who, rights), Group: readers, Subscriptions: []Subscription{{Topic: dlq}},
				Handle: func(context.Context, *primitive.MessageExt) Result { return Result{Kind: Ack} },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); !errors.Is(err, txmq.ErrRefused) || errors.Is(err, ErrNoTopic) {
				t.Errorf("Start with %s = %v, want ErrRefused for want of a right", who, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
		}
		seen := make(chan *primitive.MessageExt, 10)
		g.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- m
			return Result{Kind: Ack}
		}, g.by(g.account(t, "intake", map[string]string{"Topic:" + dlq: "Sub", "Group:" + readers: "Sub"})), intake)
		g.consume(t, func(context.Context, *primitive.MessageExt) Result {
			return Result{Kind: DeadLetter}
		}, g.by(g.user))
		if _, err := g.senderOf(t, g.user).Send(t.Context(), message(g.topic, "given-up"), nil); err != nil {
			t.Fatal(err)
		}
		if m := receive(t, seen, "dead letter"); event(m) != "given-up" {
			t.Errorf("delivered %s", event(m))
		}
	})
	onGuarded(t, "republish, by who may", func(t *testing.T, g *guarded) {
		g.makeTopic(t, retryPrefix+g.group)
		if g.version[0] == '4' {
			g.makeTopicOnce(t, HoldTopic) // only an administrator may
		}
		seen := make(chan *primitive.MessageExt, 100)
		g.consume(t, func(_ context.Context, m *primitive.MessageExt) Result {
			seen <- m
			return Result{Kind: Ack}
		}, g.by(g.user))
		redriver := g.account(t, "redriver", map[string]string{
			"Topic:" + HoldTopic: "Pub Create", "Topic:" + g.topic: "Get Sub", "Group:" + g.group: "Sub",
		})
		s := g.senderOf(t, redriver)
		if _, err := s.Republish(t.Context(), RepublishRequest{Group: g.group, Topic: g.topic, Body: []byte("b")}); err != nil {
			t.Fatalf("Republish = %v", err)
		}
		if m := receive(t, seen, "copy"); m.Topic != g.topic || string(m.Body) != "b" {
			t.Errorf("delivered %s of %s", m.Body, m.Topic)
		}
	})
}

// lines collects what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write is called by the handler.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestACLRefuses(t *testing.T) {
	t.Parallel()
	onGuarded(t, "typed, with the broker's words and without the secret", func(t *testing.T, g *guarded) {
		var logged lines
		log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		wrong, nobody := g.user, g.user
		wrong.SecretKey, nobody.AccessKey = "not-the-users-secret", "no-such-account"
		bare := g.account(t, "bare", nil)
		none := txmq.Broker{NameServers: []string{g.ns}}
		sent, err := g.senderOf(t, g.user).Send(t.Context(), message(g.topic, "e"), nil)
		if err != nil {
			t.Fatal(err)
		}
		says := map[string]string{"wrong": "signature failed", "nobody": "no-such-account", "bare": "ermission", "none": "null"}
		if g.version[0] == '4' {
			says["none"] = "No accessKey"
		}
		for who, b := range map[string]txmq.Broker{"wrong": wrong, "nobody": nobody, "bare": bare, "none": none} {
			for what, err := range g.tryAll(t, b, log, sent.OffsetMsgID) {
				if who == "bare" && g.version[0] == '4' && what == "Subscriptions" {
					continue // 4.x asks for no permission
				}
				if !errors.Is(err, txmq.ErrRefused) || !strings.Contains(err.Error(), says[who]) {
					t.Errorf("%s: %s = %v, want ErrRefused with %q", who, what, err, says[who])
				}
				if what == "TxProducer" && who != "bare" && !strings.Contains(err.Error(), "sign on") {
					t.Errorf("%s: %s = %v, want it refused at Start", who, what, err)
				}
				if errors.Is(err, ErrNoTopic) {
					t.Errorf("%s: %s = %v, and the topic exists", who, what, err)
				}
				if err != nil && strings.Contains(err.Error(), "secret") && !strings.Contains(err.Error(), "[secret]") {
					t.Errorf("%s: %s shows the secret: %v", who, what, err)
				}
			}
		}
		for _, secret := range []string{usersSecret, string(wrong.SecretKey), string(g.admin.SecretKey)} {
			if strings.Contains(logged.text(), secret) {
				t.Errorf("logged: %s", secret)
			}
		}
	})
}

// tryAll has every component do its first thing that needs the broker.
func (g *guarded) tryAll(t *testing.T, b txmq.Broker, log *slog.Logger, offsetMsgID string) map[string]error {
	t.Helper()
	ctx := t.Context()
	errs := map[string]error{}
	c, err := NewPushConsumer(PushConfig{
		Broker: b, Group: g.group, Subscriptions: []Subscription{{Topic: g.topic}}, Logger: log,
		Handle: func(context.Context, *primitive.MessageExt) Result { return Result{Kind: Ack} },
	})
	if err != nil {
		t.Fatal(err)
	}
	errs["PushConsumer.Start"] = c.Start(ctx)

	p := newTx(t, TxConfig{Broker: b, Group: "p-" + g.group, Topics: []string{g.topic}, Logger: log})
	if errs["TxProducer"] = p.Start(ctx); errs["TxProducer"] == nil { // it may sign on
		_, errs["TxProducer"] = p.SendHalf(ctx, message(g.topic, "h"), nil, never(t))
	}
	s, err := NewSender(SenderConfig{Broker: b, Group: "s-" + g.group, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	_, errs["Sender.Send"] = s.Send(ctx, message(g.topic, "e"), nil)
	_, errs["Sender.Republish"] = s.Republish(ctx, RepublishRequest{Group: g.group, Topic: g.topic, Body: []byte("b")})
	errs["SendBack"] = SendBack(ctx, b, SendBackRequest{Group: g.group, Topic: g.topic, OffsetMsgID: offsetMsgID})
	_, errs["Subscriptions"] = Subscriptions(ctx, b, g.group)
	for _, end := range []func(context.Context) error{c.Close, p.Close, s.Close} {
		if err := end(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	return errs
}
