// Package deploy_test checks the files for Docker users, which we cannot run.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

type composeFile struct {
	Services map[string]struct {
		Image   string   `yaml:"image"`
		Ports   []string `yaml:"ports"`
		Volumes []string `yaml:"volumes"`
	} `yaml:"services"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatalf("compose.yaml: %v", err)
	}
	return c
}

func TestComposeServices(t *testing.T) {
	c := readCompose(t)
	for _, name := range []string{"mariadb", "namesrv", "broker"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("service %s is missing", name)
		}
	}
	if a, b := c.Services["namesrv"].Image, c.Services["broker"].Image; a != b {
		t.Errorf("name server %s and broker %s are of different versions", a, b)
	}
}

func TestComposeImagesArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:\d+\.\d+(\.\d+)?$`)
	for name, s := range readCompose(t).Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned to a version", name, s.Image)
		}
	}
}

func TestComposePortsAreOnLoopback(t *testing.T) {
	published := regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`)
	for name, s := range readCompose(t).Services {
		if len(s.Ports) == 0 {
			t.Errorf("%s publishes no port, so no test can reach it", name)
		}
		for _, p := range s.Ports {
			if !published.MatchString(p) {
				t.Errorf("%s: port %q is not published on 127.0.0.1 alone", name, p)
			}
		}
	}
}

func TestComposeMountsExist(t *testing.T) {
	for name, s := range readCompose(t).Services {
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(filepath.FromSlash(from)); err != nil {
				t.Errorf("%s mounts %s: %v", name, from, err)
			}
		}
	}
}

// TestBrokerConf keeps the two copies of the broker's settings from drifting
// apart, and the advertised address on the published port.
func TestBrokerConf(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "scripts", "services"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("broker.conf")
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"listenPort=23386", "namesrvAddr=namesrv:9876"} // where the script has variables
	conf := settings(string(text))
	for _, line := range conf {
		if !slices.Contains(own, line) && !strings.Contains(string(script), line) {
			t.Errorf("broker.conf has %s, scripts/services has not", line)
		}
	}
	for _, line := range []string{own[0], "brokerIP1=127.0.0.1"} {
		if !slices.Contains(conf, line) {
			t.Errorf("broker.conf lacks %s", line)
		}
	}
	if !slices.Contains(readCompose(t).Services["broker"].Ports, "127.0.0.1:23386:23386") {
		t.Error("the broker's listenPort 23386 is not published as itself")
	}
}

// settings returns the lines that are neither empty nor comments.
func settings(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}
