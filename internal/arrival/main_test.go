package arrival

import (
	"testing"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
