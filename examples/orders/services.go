package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/txmq/txmq/examples/orders/demo"
)

// fill takes what is not given from TXMQ_TEST_MYSQL and TXMQ_TEST_NAMESRV, else
// from the file that scripts/services up writes.
func (s *services) fill() error {
	file := servicesFile()
	for name, field := range map[string]*string{"TXMQ_TEST_MYSQL": &s.DSN, "TXMQ_TEST_NAMESRV": &s.Namesrv} {
		if *field == "" {
			*field = os.Getenv(name)
		}
		if *field == "" {
			*field = file[name]
		}
		if *field == "" {
			return errors.New("no database or name server given, and " + name + " is not set\n" + demo.Hint)
		}
	}
	return nil
}

// servicesFile is .services/env of this folder or the next one above that has
// it, or nothing.
func servicesFile() map[string]string {
	values := map[string]string{}
	dir, err := os.Getwd()
	for err == nil {
		if text, err := os.ReadFile(filepath.Join(dir, ".services", "env")); err == nil {
			for line := range strings.Lines(string(text)) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
					values[name] = value
				}
			}
			return values
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return values
}
