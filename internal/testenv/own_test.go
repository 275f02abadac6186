package testenv_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

// up says whether somebody listens.
func up(addr string) bool {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestOwnServers(t *testing.T) {
	shared := testenv.NameServer(t)
	var own *testenv.Servers
	t.Run("lives and dies apart from the shared ones", func(t *testing.T) {
		own = testenv.OwnServers(t, "transactionCheckMax=7")
		if own.NameServer() == shared || own.Broker() == testenv.Broker(t) {
			t.Fatalf("name server %s, broker %s: the shared ones", own.NameServer(), own.Broker())
		}
		db := open(t, own.MySQL())
		query(t, db, "SELECT 1")
		if err := own.Kill(t.Context(), "mariadb", "rocketmq"); err != nil {
			t.Fatal(err)
		}
		if err := db.PingContext(t.Context()); err == nil || up(own.Broker()) || !up(own.NameServer()) {
			t.Errorf("after kill: ping of MariaDB %v, broker up %v, name server up %v; want an error, false, true",
				err, up(own.Broker()), up(own.NameServer()))
		}
		if err := own.Up(t.Context(), "mariadb", "rocketmq"); err != nil {
			t.Fatal(err)
		}
		query(t, db, "SELECT 1")
		if !up(own.Broker()) {
			t.Error("the broker is not up again")
		}
		if err := own.Kill(t.Context(), "oracle"); err == nil || !strings.Contains(err.Error(), "oracle") {
			t.Errorf("Kill(oracle) = %v, want it named", err)
		}
	})
	if own == nil {
		t.Skip("the inner test says why")
	}
	if up(own.NameServer()) || up(own.Broker()) {
		t.Error("they outlive their test")
	}
	if !up(shared) {
		t.Error("the shared name server is gone")
	}
}
