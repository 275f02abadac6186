package model

import (
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it prints each connection that a test kills
	testenv.Main(m)
}
