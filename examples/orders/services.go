package main

import (
	"errors"

	"github.com/txmq/txmq/examples/orders/demo"
	env "github.com/txmq/txmq/internal/services"
)

// fill takes what is not given from TXMQ_TEST_MYSQL and TXMQ_TEST_NAMESRV, else
// from the file that scripts/services up writes.
func (s *services) fill() error {
	for name, field := range map[string]*string{"TXMQ_TEST_MYSQL": &s.DSN, "TXMQ_TEST_NAMESRV": &s.Namesrv} {
		if *field == "" {
			*field = env.Lookup(name)
		}
		if *field == "" {
			return errors.New("no database or name server given, and " + name + " is not set\n" + demo.Hint)
		}
	}
	return nil
}
