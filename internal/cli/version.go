package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{ output }

// build is what the binary knows of itself.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the sources; empty when built outside of a checkout
	Modified bool   `json:"modified"` // the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Run prints the version.
func (c *versionCommand) Run(a *app) error {
	b := readBuild()
	if c.Output == "json" {
		return writeJSON(a.stdout, b)
	}
	revision := b.Revision
	if b.Modified {
		revision += " with changes"
	}
	if revision != "" {
		revision = " (" + revision + ")"
	}
	_, err := fmt.Fprintf(a.stdout, "txmq %s%s %s %s\n", b.Version, revision, b.Go, b.Platform)
	return err
}
