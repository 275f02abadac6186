package cli

import (
	"net/netip"

	"github.com/txmq/txmq"
)

// broker is how to reach RocketMQ. Where it is not needed, none may be named.
func (a *app) broker(needed bool) (txmq.Broker, error) {
	b := txmq.Broker{NameServers: a.root.NameServers, AccessKey: a.root.AccessKey, SecretKey: a.root.SecretKey}
	if needed && len(b.NameServers) == 0 {
		return b, usage("give --name-servers or $TXMQ_NAME_SERVERS", "no name server is named")
	}
	for _, ns := range b.NameServers {
		if at, err := netip.ParseAddrPort(ns); err != nil || at.Port() == 0 {
			return b, &txmq.FieldError{Field: a.called("name-servers"), Value: ns, Want: "ip:port, since the client resolves no host names"}
		}
	}
	switch {
	case b.AccessKey != "" && b.SecretKey == "":
		return b, &txmq.FieldError{Field: "--secret-key", Want: "both keys or neither"}
	case b.AccessKey == "" && b.SecretKey != "":
		return b, &txmq.FieldError{Field: "--access-key", Want: "both keys or neither"}
	}
	return b, nil
}
