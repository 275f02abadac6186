// Package readme holds the code that README.md shows. It is cut out by a test
// and run by another, so it compiles and does what the page says.
package readme

// Order is the service's own table, and so is Share. Neither has a unique key
// on the order's number, so a double effect would show.
type Order struct {
	ID     int64 `gorm:"primaryKey"`
	No     string
	Amount int64
	Status string
}

// Share is what a paid order leaves behind.
type Share struct {
	ID      int64 `gorm:"primaryKey"`
	OrderNo string
	Amount  int64
}
