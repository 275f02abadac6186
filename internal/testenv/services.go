package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if value := lookup(variable); value != "" {
		return value
	}
	const text = "%s is not set: run scripts/services up %s"
	if os.Getenv("CI") == "true" {
		tb.Fatalf(text, variable, service)
	}
	tb.Skipf(text, variable, service)
	return ""
}

// lookup returns a variable of the environment, else of the services' file, else "".
// The file is read each time: services may come up while a long test run lasts.
func lookup(variable string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return parse(envFile(dir))[variable]
}

// envFile returns the text of .services/env in dir or the next module root above
// it that has one; bench is a module of its own inside ours.
func envFile(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if text, err := os.ReadFile(filepath.Join(dir, ".services", "env")); err == nil {
				return string(text)
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// parse reads lines of NAME=value. Values are taken as they stand, unquoted.
func parse(text string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(name, "#") {
			values[name] = value
		}
	}
	return values
}
