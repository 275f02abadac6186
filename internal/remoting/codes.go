package remoting

import "fmt"

// Request codes, from client to broker unless the comment says otherwise.
const (
	SendMessage                 = 10
	PullMessage                 = 11
	QueryMessage                = 12
	QueryConsumerOffset         = 14
	UpdateConsumerOffset        = 15
	UpdateAndCreateTopic        = 17
	UpdateBrokerConfig          = 25
	SearchOffsetByTimestamp     = 29
	GetMaxOffset                = 30
	GetMinOffset                = 31
	ViewMessageByID             = 33
	Heartbeat                   = 34
	UnregisterClient            = 35
	ConsumerSendMsgBack         = 36
	EndTransaction              = 37
	GetConsumerListByGroup      = 38
	CheckTransactionState       = 39 // from broker to client, one-way; the answer is a request EndTransaction
	NotifyConsumerIDsChanged    = 40 // from broker to client, one-way
	LockBatchMQ                 = 41
	UnlockBatchMQ               = 42
	UpdateAndCreateACLConfig    = 50  // 4.x
	GetRouteInfoByTopic         = 105 // to the name server
	GetBrokerClusterInfo        = 106 // to the name server
	GetConsumerConnectionList   = 203
	GetAllTopicListFromNameSrv  = 206 // to the name server
	DeleteTopicInBroker         = 215
	DeleteTopicInNameSrv        = 216 // to the name server
	ResetConsumerClientOffset   = 220 // from broker to client
	GetConsumerStatusFromClient = 221 // from broker to client
	GetConsumerRunningInfo      = 307 // to the broker, which passes it on to the client
	ConsumeMessageDirectly      = 309 // to the broker, which passes it on to the client
	SendMessageV2               = 310 // SendMessage with field names of one letter
	SendBatchMessage            = 320
	SendReplyMessage            = 324
	SendReplyMessageV2          = 325
	PushReplyMessageToClient    = 326  // from broker to client
	AuthCreateUser              = 3001 // 5.3 and later
	AuthCreateACL               = 3006 // 5.3 and later
)

// Response codes.
const (
	ResSuccess                 = 0
	ResSystemError             = 1
	ResSystemBusy              = 2
	ResRequestCodeNotSupported = 3
	ResTransactionFailed       = 4
	ResFlushDiskTimeout        = 10 // stored, but not yet on disk
	ResSlaveNotAvailable       = 11 // stored, but on no replica
	ResFlushSlaveTimeout       = 12 // stored, but not yet on a replica
	ResMessageIllegal          = 13
	ResServiceNotAvailable     = 14
	ResVersionNotSupported     = 15
	ResNoPermission            = 16
	ResTopicNotExist           = 17
	ResPullNotFound            = 19
	ResPullRetryImmediately    = 20
	ResPullOffsetMoved         = 21
	ResQueryNotFound           = 22
	ResSubscriptionNotExist    = 24
	ResGroupNotExist           = 26
	ResConsumerNotOnline       = 206
)

// CodeError is a response that is not success. Call returns it.
type CodeError struct {
	Code   int
	Remark string
}

// Error has the code first, as brokers and clients write it.
func (e *CodeError) Error() string { return fmt.Sprintf("CODE: %d, DESC: %s", e.Code, e.Remark) }
