// Package migrating holds the code that docs/migrating.md shows. It is cut out
// by a test and run by another, so it compiles and does what the page says.
package migrating

// Order is the service's own table.
type Order struct {
	ID int64 `gorm:"primaryKey"`
	No string
}

// OrderMessage is the table that the old code's listener kept: a row says that
// the local transaction committed.
type OrderMessage struct {
	No string `gorm:"primaryKey;size:64"`
}
