package rocketmq

import "strings"

// reservedProperties are the names that RocketMQ itself, any version and any
// client of it, gives a meaning. A user's property of such a name would forge
// it, and be taken off or changed on the way.
var reservedProperties = set(
	// the Go client's
	"KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "TIMER_DELIVER_MS", "REAL_TOPIC", "REAL_QID",
	"TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID",
	"TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON",
	"UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TRAN_PREPARED_QUEUE_OFFSET",
	"TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "SHARDING_KEY", "__transactionId__",
	"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "MSG_TYPE", "CLUSTER",
	// the broker's and the Java client's
	"__SHARDINGKEY", "EXTEND_UNIQ_INFO", "INSTANCE_ID", "PUSH_REPLY_TIME", "DUP_INFO",
	"POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE",
	"INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "CRC32#", "__CRC32#",
	"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRACE_CONTEXT", "BORN_HOST", "BORN_TIMESTAMP",
	"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELAY_LEVEL", "TIMER_ENQUEUE_MS",
	"TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DEL_MS",
)

// isReserved also holds for names that later versions may bring.
func isReserved(property string) bool {
	return reservedProperties[property] ||
		strings.HasPrefix(property, ownPrefix) ||
		strings.HasPrefix(property, "TIMER_") ||
		strings.HasPrefix(property, "INNER_") ||
		strings.HasPrefix(property, "__")
}

// systemTopics are the broker's own; it refuses most of them to producers, and
// misbehaves with the rest.
var systemTopics = set(
	"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
	"TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest",
	"RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_BENCHMARK_TOPIC", "RMQ_SYS_SELF_TEST_TOPIC",
)

// isSystemTopic includes retry and dead-letter topics: a plain send to a
// group's retry topic ends in its dead-letter topic.
func isSystemTopic(topic string) bool {
	return systemTopics[topic] ||
		strings.HasPrefix(topic, "rmq_sys_") ||
		strings.HasPrefix(topic, retryPrefix) ||
		strings.HasPrefix(topic, "%DLQ%")
}

const (
	retryPrefix = "%RETRY%"
	ownPrefix   = "TXMQ_" // of properties that are txmq's
)

// systemGroups belong to brokers, clients and tools.
var systemGroups = set(
	"DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
	"__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
	"CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
)

func isSystemGroup(name string) bool {
	return systemGroups[name] || strings.HasPrefix(name, "CID_RMQ_SYS_")
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
