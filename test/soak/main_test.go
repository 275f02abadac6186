// Package soak takes servers away under load, for as long as one likes: a few
// rounds in make test, those that the promises are told with in make soak
// (TXMQ_SOAK=1). The servers are the test's own.
package soak

import (
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
