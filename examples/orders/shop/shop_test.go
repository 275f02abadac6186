package shop

import (
	"reflect"
	"testing"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// setup is a shop's database with one paid order and one that is not.
func setup(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(sqlite.Open(testenv.SQLite(t)), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	})
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	orders := []Order{{No: "A1", Channel: Web, Status: Paid}, {No: "A2", Channel: Market, Status: New}}
	if err := db.Create(&orders).Error; err != nil {
		t.Fatal(err)
	}
	return db
}

func status(t *testing.T, db *gorm.DB, no string) string {
	t.Helper()
	var o Order
	if err := db.Where("no = ?", no).Take(&o).Error; err != nil {
		t.Fatal(err)
	}
	return o.Status
}

func balance(t *testing.T, db *gorm.DB) int64 {
	t.Helper()
	var b Balance
	if err := db.Where("partner = ?", Partner).Take(&b).Error; err != nil {
		t.Fatal(err)
	}
	return b.Cents
}

func TestGiveShare(t *testing.T) {
	t.Parallel()
	t.Run("moves the order and the money", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		if err := GiveShare(t.Context(), db, []byte(`{"order_no":"A1","cents":100}`), 0); err != nil {
			t.Fatal(err)
		}
		if s, b := status(t, db, "A1"), balance(t, db); s != Sharing || b != ShareCents {
			t.Errorf("order is %s, balance %d, want %s and %d", s, b, Sharing, ShareCents)
		}
	})
	t.Run("has nothing that hides a double or a phantom effect", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		for _, no := range []string{"A1", "A1", "A2"} {
			if err := GiveShare(t.Context(), db, []byte(`{"order_no":"`+no+`"}`), 0); err != nil {
				t.Fatal(err)
			}
		}
		var shares int64
		if err := db.Model(&Share{}).Count(&shares).Error; err != nil {
			t.Fatal(err)
		}
		if b := balance(t, db); shares != 3 || b != 3*ShareCents {
			t.Errorf("%d shares, balance %d, want 3 and %d", shares, b, 3*ShareCents)
		}
		if s := status(t, db, "A2"); s != New {
			t.Errorf("order that is not paid became %s", s)
		}
	})
	t.Run("gives a body that is none up for good", func(t *testing.T) {
		t.Parallel()
		err := GiveShare(t.Context(), setup(t), []byte("<xml>"), 0)
		if err == nil || reflect.TypeOf(err) != reflect.TypeOf(consumer.Permanent(err)) {
			t.Errorf("GiveShare = %v, want a permanent error", err)
		}
	})
}

func TestPaidMessageIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	c := Config{Suffix: "-x"}
	o := Order{ID: 7, No: "A7", Channel: Market, Cents: 12, Status: New}
	first, err := c.PaidMessage(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Status = Sharing
	second, err := c.PaidMessage(o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, second) || first.EventID != "pay:A7" || first.Topic != "order-paid-market-x" {
		t.Errorf("PaidMessage = %+v, then %+v", first, second)
	}
}
