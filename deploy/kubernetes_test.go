package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/txmq/txmq/internal/cli"
)

// manifest is what ours use of Kubernetes' objects, and no more: decoding is
// strict, so a mistyped field is an error.
type manifest struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       struct {
		Replicas int `yaml:"replicas"`
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		Strategy struct {
			RollingUpdate struct {
				MaxUnavailable int `yaml:"maxUnavailable"`
				MaxSurge       int `yaml:"maxSurge"`
			} `yaml:"rollingUpdate"`
		} `yaml:"strategy"`
		BackoffLimit int `yaml:"backoffLimit"`
		TTL          int `yaml:"ttlSecondsAfterFinished"`
		Template     struct {
			Metadata metadata `yaml:"metadata"`
			Spec     pod      `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type pod struct {
	RestartPolicy   string `yaml:"restartPolicy"`
	Grace           int    `yaml:"terminationGracePeriodSeconds"`
	AutomountToken  *bool  `yaml:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
		RunAsGroup   int  `yaml:"runAsGroup"`
		Seccomp      struct {
			Type string `yaml:"type"`
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container `yaml:"containers"`
}

type container struct {
	Name            string    `yaml:"name"`
	Image           string    `yaml:"image"`
	Command         []string  `yaml:"command"`
	Args            []string  `yaml:"args"`
	Env             []envVar  `yaml:"env"`
	Ports           []port    `yaml:"ports"`
	Startup         *probe    `yaml:"startupProbe"`
	Liveness        *probe    `yaml:"livenessProbe"`
	Readiness       *probe    `yaml:"readinessProbe"`
	Resources       resources `yaml:"resources"`
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct {
			Drop []string `yaml:"drop"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
}

type envVar struct {
	Name      string `yaml:"name"`
	Value     string `yaml:"value"`
	ValueFrom struct {
		SecretKeyRef struct {
			Name string `yaml:"name"`
			Key  string `yaml:"key"`
		} `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type port struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type resources struct {
	Requests, Limits map[string]string
}

// manifests are all objects of deploy/kubernetes, by name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	paths, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	found := map[string]manifest{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
		for {
			var m manifest
			err := d.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			found[m.Metadata.Name] = m
		}
	}
	for _, name := range []string{"txmq-migrate", "txmq-serve", "orders-pay", "orders-share"} {
		if _, ok := found[name]; !ok {
			t.Fatalf("%s is missing", name)
		}
	}
	return found
}

func (m manifest) container() container { return m.Spec.Template.Spec.Containers[0] }

func TestKubernetesObjects(t *testing.T) {
	for name, m := range manifests(t) {
		labels := map[string]string{"app.kubernetes.io/name": name}
		same := func(what string, got map[string]string) {
			if len(got) != 1 || got["app.kubernetes.io/name"] != name {
				t.Errorf("%s: %s = %v, want %v", name, what, got, labels)
			}
		}
		same("labels", m.Metadata.Labels)
		same("the pods' labels", m.Spec.Template.Metadata.Labels)
		switch m.APIVersion + " " + m.Kind {
		case "apps/v1 Deployment":
			same("selector", m.Spec.Selector.MatchLabels)
			if u := m.Spec.Strategy.RollingUpdate; m.Spec.Replicas < 2 || u.MaxUnavailable != 0 || u.MaxSurge < 1 {
				t.Errorf("%s: %d replicas, %+v: an update would stop the work", name, m.Spec.Replicas, u)
			}
		case "batch/v1 Job":
			if m.Spec.Template.Spec.RestartPolicy != "Never" {
				t.Errorf("%s: a Job needs a restart policy", name)
			}
		default:
			t.Errorf("%s is a %s %s", name, m.APIVersion, m.Kind)
		}
	}
}

func TestKubernetesPodsAreConfined(t *testing.T) {
	version := regexp.MustCompile(`:\d+\.\d+\.\d+$`)
	for name, m := range manifests(t) {
		p, c := m.Spec.Template.Spec, m.container()
		s, cs := p.SecurityContext, c.SecurityContext
		if len(p.Containers) != 1 || !s.RunAsNonRoot || s.RunAsUser == 0 || s.RunAsGroup == 0 || s.Seccomp.Type != "RuntimeDefault" ||
			p.AutomountToken == nil || *p.AutomountToken {
			t.Errorf("%s: pod %+v", name, p)
		}
		if cs.AllowPrivilegeEscalation == nil || *cs.AllowPrivilegeEscalation || !cs.ReadOnlyRootFilesystem ||
			!slices.Equal(cs.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s: security context %+v", name, cs)
		}
		if c.Resources.Requests["memory"] == "" || c.Resources.Limits["memory"] == "" {
			t.Errorf("%s: resources %v", name, c.Resources)
		}
		if !version.MatchString(c.Image) {
			t.Errorf("%s: image %q is not pinned to a version", name, c.Image)
		}
		for _, e := range c.Env {
			if strings.HasSuffix(e.Name, "_DSN") && (e.Value != "" || e.ValueFrom.SecretKeyRef.Name == "" || e.ValueFrom.SecretKeyRef.Key == "") {
				t.Errorf("%s: %s is not from a Secret", name, e.Name)
			}
		}
	}
}

// TestKubernetesCommandsAreReal: the programs know the arguments and variables.
func TestKubernetesCommandsAreReal(t *testing.T) {
	orders, err := os.ReadFile(filepath.Join("..", "examples", "orders", "cli.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range manifests(t) {
		c := m.container()
		var help, errs bytes.Buffer
		switch c.Command[0] {
		case "txmq":
			if code := cli.Run(context.Background(), append(slices.Clone(c.Args), "--help"), strings.NewReader(""), &help, &errs); code != 0 {
				t.Errorf("%s: txmq %v: %s", name, c.Args, &errs)
			}
			t.Setenv("TXMQ_DSN", "")
			code := cli.Run(context.Background(), c.Args, strings.NewReader(""), &help, &errs)
			if !strings.Contains(errs.String(), "no database is named") {
				t.Errorf("%s: txmq %v exits %d: %s; want it to miss nothing but the database", name, c.Args, code, &errs)
			}
		case "orders":
			help.Write(orders)
			if command := regexp.MustCompile(`(?i)\b` + c.Args[0] + `Command `); !command.Match(orders) {
				t.Errorf("%s: orders has no command %s", name, c.Args[0])
			}
		default:
			t.Errorf("%s runs %v", name, c.Command)
		}
		for _, e := range c.Env {
			if !strings.Contains(help.String(), "$"+e.Name) && !strings.Contains(help.String(), `env:"`+e.Name+`"`) {
				t.Errorf("%s: %s knows no %s", name, c.Command[0], e.Name)
			}
		}
	}
}

// TestKubernetesCompensates: without name servers `txmq serve` only sweeps.
func TestKubernetesCompensates(t *testing.T) {
	env := manifests(t)["txmq-serve"].container().Env
	i := slices.IndexFunc(env, func(e envVar) bool { return e.Name == "TXMQ_NAME_SERVERS" })
	if i < 0 {
		t.Fatal("txmq-serve has no TXMQ_NAME_SERVERS")
	}
	for address := range strings.SplitSeq(env[i].Value, ",") {
		if _, err := netip.ParseAddrPort(address); err != nil {
			t.Errorf("TXMQ_NAME_SERVERS: %v", err)
		}
	}
}

func TestKubernetesProbes(t *testing.T) {
	page := map[string]string{} // of the two programs
	for program, path := range map[string]string{"txmq": "../internal/cli/health.go", "orders": "../examples/orders/health.go"} {
		text, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		page[program] = string(text)
	}
	for name, m := range manifests(t) {
		c := m.container()
		if m.Kind != "Deployment" {
			continue
		}
		for what, p := range map[string]*probe{"startup": c.Startup, "liveness": c.Liveness, "readiness": c.Readiness} {
			want := "/readyz"
			if what == "liveness" {
				want = "/livez"
			}
			if p == nil || p.HTTPGet.Path != want || p.HTTPGet.Port != "health" || p.PeriodSeconds < 1 || p.FailureThreshold < 2 {
				t.Errorf("%s: %s probe %+v, want %s on the port health", name, what, p, want)
			}
			if !strings.Contains(page[c.Command[0]], want+`"`) {
				t.Errorf("%s: %s serves no %s", name, c.Command[0], want)
			}
		}
		if listens := listening(c); len(c.Ports) != 1 || c.Ports[0].Name != "health" || listens != "0.0.0.0:"+strconv.Itoa(c.Ports[0].ContainerPort) {
			t.Errorf("%s: listens at %q, its port is %v; probes come from outside the container", name, listens, c.Ports)
		}
		if c.Startup != nil && c.Startup.PeriodSeconds*c.Startup.FailureThreshold < 60 {
			t.Errorf("%s: gets %d s to start; a broker that restarts takes longer", name, c.Startup.PeriodSeconds*c.Startup.FailureThreshold)
		}
	}
}

// listening is the address of the health page that the manifest sets.
func listening(c container) string {
	for _, arg := range c.Args {
		if addr, ok := strings.CutPrefix(arg, "--listen="); ok {
			return addr
		}
	}
	for _, e := range c.Env {
		if e.Name == "ORDERS_HEALTH" {
			return e.Value
		}
	}
	return ""
}

// afterDrain is what a stop takes at most when a drain has run out: 5 s to write
// what became of the last deliveries, 1 s for the client to tell the broker.
const afterDrain = 6 * time.Second

// TestKubernetesGrace: the kubelet's SIGKILL comes after the drain, with some
// seconds to spare, and the drain is long enough for a handler that has just
// begun.
func TestKubernetesGrace(t *testing.T) {
	const spare = 5 * time.Second
	drains := map[string]time.Duration{
		"orders-pay":   standard(t, "producer.Config.Drain"),
		"orders-share": standard(t, "consumer.Config.Drain"),
		"txmq-serve":   standard(t, "jobs.Config.Drain"),
	}
	for name, m := range manifests(t) {
		if m.Kind != "Deployment" {
			continue
		}
		drain, grace := drains[name], time.Duration(m.Spec.Template.Spec.Grace)*time.Second
		for _, arg := range m.container().Args {
			if text, ok := strings.CutPrefix(arg, "--drain="); ok {
				var err error
				if drain, err = time.ParseDuration(text); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if drain == 0 || grace < drain+afterDrain+spare {
			t.Errorf("%s: grace period %v, want the drain (%v) + %v + %v or more", name, grace, drain, afterDrain, spare)
		}
	}
	if drain, deadline := standard(t, "consumer.Config.Drain"), standard(t, "consumer.Config.Deadline"); drain < deadline {
		t.Errorf("drain %v is less than a handler's deadline %v: a stop would break off sound work", drain, deadline)
	}
}

// standard is a default, as the table of docs/design.md tells it, which a test
// there holds to the code.
func standard(t *testing.T, field string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(field) + "` \\| (\\w+) \\|").FindSubmatch(text)
	if row == nil {
		t.Fatalf("docs/design.md has no default of %s", field)
	}
	d, err := time.ParseDuration(string(row[1]))
	if err != nil {
		t.Fatal(err)
	}
	return d
}
