package testenv

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// networks numbers the names of Through: the driver keeps them for the life of
// the process.
var networks atomic.Int64

// Through returns dsn with every connection made by dial, for tests that stand
// on the wire: they cut it, or change what is said. With the Config itself the
// driver's own lines about broken connections go nowhere; FormatDSN can't say so.
func Through(tb testing.TB, dsn string, dial func(ctx context.Context, addr string) (net.Conn, error)) *mysql.Config {
	tb.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Net = fmt.Sprintf("testenv%d", networks.Add(1))
	cfg.Logger = new(mysql.NopLogger)
	mysql.RegisterDialContext(cfg.Net, dial)
	tb.Cleanup(func() { mysql.DeregisterDialContext(cfg.Net) })
	return cfg
}

// Dial is the dial of an ordinary connection, for Through's dial to begin with.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}
