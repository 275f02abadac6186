package testenv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

// fakeTB records how a test would have ended.
type fakeTB struct {
	testing.TB
	skipped, fatal string
	errors         []string
	cleanups       []func()
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Skipf(format string, args ...any) {
	f.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// try calls fn as a test of its own, without the cleanups.
func try(fn func(testing.TB)) *fakeTB {
	f := new(fakeTB)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(f)
	}()
	<-done
	return f
}

// inModule moves the test into a folder two below a module root with that env file.
func inModule(t *testing.T, env string) {
	t.Helper()
	root := t.TempDir()
	deep := filepath.Join(root, "internal", "deep")
	write(t, filepath.Join(root, "go.mod"), "module example.com/m\n")
	if env != "" {
		write(t, filepath.Join(root, ".services", "env"), env)
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	for _, name := range []string{"MYSQL", "NAMESRV", "NAMESRV_4_9_7", "BROKER", "BROKER_4_9_7", "NAMESRV_ACL_4_9_7", "BROKER_ACL_4_9_7", "ADMIN_ACL_4_9_7"} {
		t.Setenv("TXMQ_TEST_"+name, "")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const env = `# comment=not a variable
TXMQ_TEST_NAMESRV=127.0.0.1:1
TXMQ_TEST_BROKER=127.0.0.1:2

TXMQ_TEST_NAMESRV_4_9_7=127.0.0.1:3
TXMQ_TEST_BROKER_4_9_7=127.0.0.1:4
TXMQ_TEST_NAMESRV_ACL_4_9_7=127.0.0.1:5
TXMQ_TEST_BROKER_ACL_4_9_7=127.0.0.1:6
TXMQ_TEST_ADMIN_ACL_4_9_7=key:secret
`

func TestLookup(t *testing.T) {
	t.Run("the file at the module root is found from below", func(t *testing.T) {
		inModule(t, env)
		for _, c := range []struct{ name, got, want string }{
			{"NameServer", testenv.NameServer(t), "127.0.0.1:1"},
			{"Broker", testenv.Broker(t), "127.0.0.1:2"},
			{"NameServerVersion", testenv.NameServerVersion(t, "4.9.7"), "127.0.0.1:3"},
			{"BrokerVersion", testenv.BrokerVersion(t, "4.9.7"), "127.0.0.1:4"},
			{"NameServerVersion of the default", testenv.NameServerVersion(t, testenv.DefaultVersion), "127.0.0.1:1"},
		} {
			if c.got != c.want {
				t.Errorf("%s = %q, want %q", c.name, c.got, c.want)
			}
		}
		if got, want := testenv.ACL(t, "4.9.7"), (testenv.Guarded{
			NameServer: "127.0.0.1:5", Broker: "127.0.0.1:6", AdminKey: "key", AdminSecret: "secret",
		}); got != want {
			t.Errorf("ACL = %+v, want %+v", got, want)
		}
	})

	t.Run("the environment goes before the file", func(t *testing.T) {
		inModule(t, env)
		t.Setenv("TXMQ_TEST_NAMESRV", "127.0.0.1:9")
		if got := testenv.NameServer(t); got != "127.0.0.1:9" {
			t.Errorf("NameServer = %q, want the variable's 127.0.0.1:9", got)
		}
	})

	t.Run("a nested module uses the file of the outer one", func(t *testing.T) {
		inModule(t, env)
		write(t, "go.mod", "module example.com/m/internal/deep\n")
		if got := testenv.NameServer(t); got != "127.0.0.1:1" {
			t.Errorf("NameServer = %q, want 127.0.0.1:1", got)
		}
	})
}

func TestMissingService(t *testing.T) {
	calls := []struct {
		name string
		call func(testing.TB)
		want string
	}{
		{"MySQL", func(tb testing.TB) { testenv.MySQL(tb) }, "scripts/services up mariadb"},
		{"NameServer", func(tb testing.TB) { testenv.NameServer(tb) }, "scripts/services up rocketmq@5.3.3"},
		{"NameServerVersion", func(tb testing.TB) { testenv.NameServerVersion(tb, "4.9.7") }, "scripts/services up rocketmq@4.9.7"},
		{"Broker", func(tb testing.TB) { testenv.Broker(tb) }, "scripts/services up rocketmq@5.3.3"},
		{"ACL", func(tb testing.TB) { testenv.ACL(tb, "4.9.7") }, "scripts/services up rocketmq-acl@4.9.7"},
		{"Java", func(tb testing.TB) { testenv.Java(tb) }, "scripts/services up java"},
	}
	for _, c := range calls {
		t.Run(c.name+" skips and says how to start it", func(t *testing.T) {
			inModule(t, "")
			t.Setenv("CI", "")
			if f := try(c.call); !strings.Contains(f.skipped, c.want) || f.fatal != "" {
				t.Errorf("skipped %q, fatal %q; want a skip with %q", f.skipped, f.fatal, c.want)
			}
		})
		t.Run(c.name+" fails under CI", func(t *testing.T) {
			inModule(t, "TXMQ_TEST_OTHER=1\n")
			t.Setenv("CI", "true")
			if f := try(c.call); !strings.Contains(f.fatal, c.want) || f.skipped != "" {
				t.Errorf("fatal %q, skipped %q; want a failure with %q", f.fatal, f.skipped, c.want)
			}
		})
	}
}
