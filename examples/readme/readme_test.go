package readme

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/txmq/txmq"
	"github.com/txmq/txmq/consumer"
	"github.com/txmq/txmq/internal/loop"
	"github.com/txmq/txmq/internal/testenv"
	"github.com/txmq/txmq/model"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestReadme pays one order twice on a real broker and a real database, and
// waits until its profit is shared.
func TestReadme(t *testing.T) {
	ctx, db := t.Context(), openDB(t)
	broker := txmq.Broker{NameServers: []string{testenv.NameServer(t)}}
	no := rand.Text() // the topic is shared with earlier runs
	if err := db.Create(&Order{No: no, Amount: 100, Status: "NEW"}).Error; err != nil {
		t.Fatal(err)
	}

	p, err := NewProducer(ctx, db, broker)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	for range 2 { // the second is a duplicate
		if err := Pay(ctx, p, no, 100); err != nil {
			t.Fatalf("Pay = %v, want nil", err)
		}
	}
	if err := Pay(ctx, p, no+"-unknown", 100); err == nil {
		t.Error("Pay of an order that does not exist = nil, want an error")
	}

	consume(ctx, t, db, broker, no)

	var shares []Share
	if err := db.Where("order_no = ?", no).Find(&shares).Error; err != nil {
		t.Fatal(err)
	}
	if len(shares) != 1 || shares[0].Amount != 10 {
		t.Errorf("shares = %+v, want one of 10", shares)
	}
	var o Order
	if err := db.Where("no = ?", no).First(&o).Error; err != nil || o.Status != "SHARING" {
		t.Errorf("order = %+v, %v, want SHARING", o, err)
	}
}

// consume runs the service until the order's event is done.
func consume(ctx context.Context, t *testing.T, db *gorm.DB, broker txmq.Broker, no string) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done, ready := make(chan error, 1), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { done <- Serve(ctx, db, broker, func() { close(ready) }) })
	poll(ctx, t, func() bool {
		var n int64
		db.Model(&model.ConsumeRecord{}).Where("event_id = ? AND status = 'SUCCESS'", "pay:"+no).Count(&n)
		return n == 1
	})
	<-ready
	stop()
	if err := <-done; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

// TestPermanent needs no service.
func TestPermanent(t *testing.T) {
	err := ShareProfit(t.Context(), nil, &consumer.Delivery{Body: []byte("{")})
	if err == nil {
		t.Error("ShareProfit of a broken body = nil, want an error")
	}
}

func openDB(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(mysql.Open(testenv.MySQL(t)), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if _, err := model.Migrate(t.Context(), db, model.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}, &Share{}); err != nil {
		t.Fatal(err)
	}
	return db
}

// poll looks until is says so, for at most a minute.
func poll(ctx context.Context, t *testing.T, is func() bool) {
	t.Helper()
	ctx, found := context.WithTimeout(ctx, time.Minute)
	defer found()
	yes := false
	_ = loop.Loop{Interval: 100 * time.Millisecond, Step: func(context.Context) (bool, error) {
		if yes = is(); yes {
			found()
		}
		return false, nil
	}}.Run(ctx)
	if !yes {
		t.Fatal("nothing came of it within a minute")
	}
}

// TestNotify needs no service but one of its own: what each answer means.
func TestNotify(t *testing.T) {
	d := &consumer.Delivery{EventID: "pay:1", Version: 3}
	for status, want := range map[int]string{
		http.StatusOK:                 "",
		http.StatusGone:               "skipped: the other side no longer wants it",
		http.StatusBadRequest:         "permanent: 400 Bad Request",
		http.StatusServiceUnavailable: "503 Service Unavailable",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == d.EventID && r.Header.Get("Fencing-Version") == "3" {
				w.WriteHeader(status)
			} else {
				w.WriteHeader(http.StatusTeapot)
			}
		}))
		got := ""
		if err := Notify(server.Client(), server.URL)(t.Context(), d); err != nil {
			got = err.Error()
		}
		server.Close()
		if got != want {
			t.Errorf("answer %d means %q, want %q", status, got, want)
		}
	}
}

// TestWithMail: a failure leaves no mail to send.
func TestWithMail(t *testing.T) {
	fail := errors.New("no stock")
	work := func(context.Context, *gorm.DB, *consumer.Delivery) error { return fail }
	do := WithMail(work, func(context.Context, string) { t.Error("mail was sent before any COMMIT") })
	if err := do(t.Context(), nil, &consumer.Delivery{}); !errors.Is(err, fail) {
		t.Errorf("work = %v, want its own error", err)
	}
	fail = nil
	if err := do(t.Context(), nil, &consumer.Delivery{}); err != nil {
		t.Errorf("work = %v, want nil", err)
	}
}
