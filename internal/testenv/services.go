package testenv

import (
	"os"
	"strings"
	"testing"

	"github.com/txmq/txmq/internal/services"
)

// DefaultVersion is the RocketMQ version that NameServer and Broker stand for.
const DefaultVersion = "5.3.3"

// NameServer returns the address (127.0.0.1:port) of the name server of the
// default version, to which a ready broker has registered.
func NameServer(tb testing.TB) string {
	tb.Helper()
	return NameServerVersion(tb, DefaultVersion)
}

// NameServerVersion is NameServer for a version such as "4.9.7". Versions other
// than the default run only when brought up by name: rocketmq@4.9.7.
func NameServerVersion(tb testing.TB, version string) string {
	tb.Helper()
	return need(tb, "TXMQ_TEST_NAMESRV"+suffix(version), "rocketmq@"+version)
}

// Broker returns the address of the default version's broker, for tests that
// put a proxy before it or speak to it themselves.
func Broker(tb testing.TB) string {
	tb.Helper()
	return BrokerVersion(tb, DefaultVersion)
}

// BrokerVersion is Broker for another version.
func BrokerVersion(tb testing.TB, version string) string {
	tb.Helper()
	return need(tb, "TXMQ_TEST_BROKER"+suffix(version), "rocketmq@"+version)
}

// Guarded is a broker that asks for a signature, and its name server, which
// does not.
type Guarded struct {
	NameServer, Broker string
	// AdminKey and AdminSecret are of the only account that it begins with. It
	// may do everything, make accounts too.
	AdminKey, AdminSecret string
}

// ACL returns the broker of a version, "4.9.7" or "5.5.0", that has ACL on. It
// runs only when brought up by name: rocketmq-acl@4.9.7.
func ACL(tb testing.TB, version string) Guarded {
	tb.Helper()
	end, service := "_ACL"+suffix(version), "rocketmq-acl@"+version
	g := Guarded{NameServer: need(tb, "TXMQ_TEST_NAMESRV"+end, service), Broker: need(tb, "TXMQ_TEST_BROKER"+end, service)}
	g.AdminKey, g.AdminSecret, _ = strings.Cut(need(tb, "TXMQ_TEST_ADMIN"+end, service), ":")
	return g
}

// Java returns the class path, for java and javac, of RocketMQ's client and
// MariaDB's JDBC driver, for tests that run a service in Java. A JDK is there
// too: java can run a source file.
func Java(tb testing.TB) string {
	tb.Helper()
	return need(tb, "TXMQ_TEST_JAVA", "java")
}

// suffix turns a version into the end of a variable's name: "_4_9_7".
func suffix(version string) string {
	if version == DefaultVersion {
		return ""
	}
	return "_" + strings.ReplaceAll(version, ".", "_")
}

// need returns the value of a variable, or ends the test for want of the service.
func need(tb testing.TB, variable, service string) string {
	tb.Helper()
	if value := services.Lookup(variable); value != "" {
		return value
	}
	const text = "%s is not set: run scripts/services up %s"
	if os.Getenv("CI") == "true" {
		tb.Fatalf(text, variable, service)
	}
	tb.Skipf(text, variable, service)
	return ""
}
