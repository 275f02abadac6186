package txmq

// Names of the message properties that txmq puts on the wire. They are part of
// the protocol between services and are never renamed.
const (
	// PropertyEventID carries Message.EventID.
	PropertyEventID = "TXMQ_EVENT_ID"
	// PropertyAttempt names one call of SendInTransaction. All halves that the
	// client's own send retries store carry the same one.
	PropertyAttempt = "TXMQ_ATTEMPT"
	// PropertyDatabaseID names the database that holds the transaction log of
	// the message; a checker answers for its own database only.
	PropertyDatabaseID = "TXMQ_DB"
	// PropertyBorn is the time of the first birth, in milliseconds of the Unix
	// epoch. It is kept through every re-publish.
	PropertyBorn = "TXMQ_BORN"
	// PropertyRedrive marks a copy that was sent again to one consumer group.
	PropertyRedrive = "TXMQ_REDRIVE"
	// PropertyShardingKey carries Message.ShardingKey.
	PropertyShardingKey = "TXMQ_KEY"
)

// Message is what a service hands to a producer. It is a value: a producer
// copies what it needs before it returns, and never changes it.
type Message struct {
	// Topic is required: 1 to 127 of letters, digits, "_", "-", "%" and "|".
	Topic string

	// EventID is the idempotency key: it names one logical operation, such as
	// "pay:" and an order number. At most 255 bytes, compared byte by byte.
	// Empty: a UUIDv7 is made, and returned in the receipt.
	EventID string

	// Tag is what consumers filter by. Optional; no "||" in it.
	Tag string

	// Keys are what people search a message by in a RocketMQ console. They are
	// not the event ID. Optional; no spaces within a key.
	Keys []string

	// ShardingKey sends equal keys to one queue. Optional.
	ShardingKey string

	// Body is required: brokers of 5.x refuse an empty one. At most
	// MaxBodyBytes.
	Body []byte

	// Properties are the user's own. Names are not RocketMQ's or txmq's;
	// values are not empty and hold no control characters; all together at most
	// MaxPropertyBytes.
	Properties map[string]string

	// DelayLevel 1 to 18 delays delivery by the broker's messageDelayLevel
	// (1s 5s 10s 30s 1m to 10m 20m 30m 1h 2h). 0 is none. A transactional
	// message can't be delayed.
	DelayLevel int
}

const (
	// MaxBodyBytes is 4 MiB (the broker's maxMessageSize) less 64 KiB, so that
	// the properties which a retry adds still fit.
	MaxBodyBytes = 4<<20 - 64<<10
	// MaxPropertyBytes is the 32,767 bytes that brokers keep for properties,
	// less 2 KiB for what the client, the broker and a retry add. A message
	// without that head-room can't be sent back, and its consumer loops.
	MaxPropertyBytes = 32767 - 2<<10
	// MaxEventIDBytes is the width of the key columns.
	MaxEventIDBytes = 255
)
