// Package services finds the servers that scripts/services brings up, for tests,
// benchmarks and the demo.
package services

import (
	"os"
	"path/filepath"
	"strings"
)

// Lookup returns a variable of the environment, else of the file .services/env
// that `scripts/services up` writes at the module root, else "". The file is
// read each time: services may come up while a long run lasts.
func Lookup(variable string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return Parse(envFile(dir))[variable]
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

// Parse reads lines of NAME=value. Values are taken as they stand, unquoted.
func Parse(text string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(name, "#") {
			values[name] = value
		}
	}
	return values
}
