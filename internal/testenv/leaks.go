package testenv

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails when goroutines are left behind:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// more adds what is special to one package; say there why.
func Main(m *testing.M, more ...goleak.Option) {
	goleak.VerifyTestMain(m, append(ignores(), more...)...)
}

// Leaks is nil when no goroutine is left but those that Main lets be, for a
// package whose TestMain is another's.
func Leaks() error { return goleak.Find(ignores()...) }

func ignores() []goleak.Option {
	options := make([]goleak.Option, 0, len(known))
	for _, k := range known {
		options = append(options, goleak.IgnoreAnyFunction(k.function))
	}
	return options
}

const client = "github.com/apache/rocketmq-client-go/v2/"

// known are goroutines that live on after everything was closed as it should
// be, by no fault of the test. A RocketMQ client that was never shut down is
// still found: its route update (rmqClient.Start.func1.2) and its rebalancing
// (func1.5) end with Shutdown and are not listed. The numbers in the names are
// those of the pinned client; leaks_test.go fails when they move.
var known = []struct{ function, reason string }{
	{client + "internal.(*rmqClient).Start.func1.1", "sleeps 10 s before it looks whether the client was shut down (name server addresses)"},
	{client + "internal.(*rmqClient).Start.func1.3", "the same, 1 s (heartbeat)"},
	{client + "internal.(*rmqClient).Start.func1.4", "the same, 10 s (offsets)"},
	{client + "internal/remote.(*remotingClient).receiveResponse", "the name server's connection is never closed; its read ends after 2 minutes"},
	{client + "internal/remote.(*ResponseFuture).waitResponse", "Shutdown drops the answer of a request in flight, which then waits for its time-out, 3 to 30 s"},
	{client + "internal.(*rmqClient).RebalanceImmediately", "waits for the lock that a rebalance with such a request holds"},
	{client + "producer.(*transactionProducer).checkTransactionState", "reads a channel that nothing closes, for the life of the process"},
	{client + "consumer.(*pushConsumer).Start.func1.2", "sleeps ConsumeTimeout (15 min) before it looks (expired messages)"},
	{client + "consumer.(*pushConsumer).Start.func1.3", "the same, 1 s (first lock of an orderly consumer)"},
	{client + "consumer.(*pushConsumer).pullMessage", "pauses up to some seconds before it looks"},
	{client + "consumer.(*defaultPullConsumer).pullMessage", "the same"},
	{client + "consumer.(*processQueue).takeMessages", "an orderly queue's loop looks for more for 5 s before it ends"},
	{client + "consumer.(*statsItemSet).init.func4", "sleeps to the next full minute before it looks"},
	{client + "consumer.(*statsItemSet).init.func5", "the same, hour"},
	{client + "consumer.(*statsItemSet).init.func6", "the same, day"},
	{"github.com/patrickmn/go-cache.(*janitor).Run", "a package variable of the client, from init on"},
	{"gorm.io/gorm/internal/lru.NewLRU[...].func1", "the statement cache of PrepareStmt has no Close"},
}
