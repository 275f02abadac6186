package testenv_test

import (
	"testing"

	"github.com/apache/rocketmq-client-go/v2/rlog"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) {
	rlog.SetLogLevel("fatal") // the client logs its shutdown as errors
	testenv.Main(m)
}
