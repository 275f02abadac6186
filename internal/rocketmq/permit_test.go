package rocketmq

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/internal/remoting"
)

func TestPermit(t *testing.T) {
	t.Parallel()
	const acl = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
	for name, c := range map[string]struct {
		answers string // of the brokers in turn: "+" takes all, "-" refuses, "!" is out of order, "0" does not answer
		refused bool
		logged  bool
	}{
		"one that takes all":              {answers: "+"},
		"one that refuses":                {answers: "-", refused: true},
		"all refuse":                      {answers: "--", refused: true},
		"one of two":                      {answers: "-+", logged: true},
		"one of two, the other is down":   {answers: "-0", refused: true},
		"one that is down":                {answers: "0"},
		"one that is out of order":        {answers: "!"},
		"one of two, the other is broken": {answers: "-!", logged: true},
		"none":                            {answers: ""},
	} {
		for _, refusal := range []remoting.CodeError{{Code: remoting.ResNoPermission, Remark: "no"}, {Code: remoting.ResSystemError, Remark: acl}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var brokers []remoting.BrokerAddr
				for i, kind := range c.answers {
					if kind == '0' {
						brokers = append(brokers, remoting.BrokerAddr{Name: string(rune('a' + i)), Addr: "127.0.0.1:1"})
						continue
					}
					b := newFakeBroker(t)
					b.rest = func(req remoting.Frame) remoting.Frame {
						res := req.Reply(remoting.ResQueryNotFound)
						switch {
						case kind == '!':
							res.Code, res.Remark = remoting.ResSystemError, "java.lang.NullPointerException"
						case kind == '-' && req.Code == remoting.QueryMessage: // the second
							res.Code, res.Remark = refusal.Code, refusal.Remark
						}
						return res
					}
					brokers = append(brokers, remoting.BrokerAddr{Name: string(rune('a' + i)), Addr: b.addr})
				}
				var logged lines
				p := newPermit(at("127.0.0.1:1"), slog.New(slog.NewTextHandler(&logged, nil)))
				err := p.ask(t.Context(), brokers, "group g consume topic t", toConsume("g", "t")...)
				if c.refused != errors.Is(err, txmq.ErrRefused) || !c.refused && err != nil {
					t.Errorf("ask = %v, want refused = %v", err, c.refused)
				}
				if c.refused && !strings.Contains(err.Error(), "broker a does not let group g consume topic t") {
					t.Errorf("ask = %v, want broker, group and topic", err)
				}
				if got := strings.Contains(logged.text(), refusal.Remark); got != c.logged {
					t.Errorf("logged %q, want a refusal: %v", logged.text(), c.logged)
				}
			})
		}
	}
}
