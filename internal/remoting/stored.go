package remoting

import (
	"errors"
	"fmt"
	"strings"
)

// Stored is what is wanted of a message as the broker keeps it.
type Stored struct {
	Topic      string
	Properties map[string]string
}

const (
	magicV1 = 0xDAA320A7
	magicV2 = 0xDAA320AB // 5.x, with room for topics longer than 127 bytes

	storeHostV6 = 1 << 5 // bits of the system flag
	bornHostV6  = 1 << 4
)

// DecodeStored reads one message as the body of a response to ViewMessageByID
// holds it:
//
//	int32 size, magic, body CRC, queue, flag; int64 queue offset, commit-log offset;
//	int32 system flag; int64 born, 4 or 16 bytes of host, int32 port;
//	int64 stored, host, port; int32 reconsume times; int64 prepared offset;
//	int32 length, body; int8 (V2: int16) length, topic; int16 length, properties
func DecodeStored(b []byte) (Stored, error) {
	d := cutter{b: b}
	size := d.uint32()
	magic := d.uint32()
	d.next(4 + 4 + 4 + 8 + 8)
	flag := d.uint32()
	d.next(8 + hostLen(flag, bornHostV6))
	d.next(8 + hostLen(flag, storeHostV6))
	d.next(4 + 8)
	d.next(int64(d.uint32()))
	topicLen := int64(0)
	if magic == magicV2 {
		topicLen = int64(d.uint16())
	} else {
		topicLen = int64(d.uint8())
	}
	m := Stored{Topic: string(d.next(topicLen))}
	m.Properties = properties(string(d.next(int64(d.uint16()))))
	switch {
	case d.err != nil:
		return Stored{}, fmt.Errorf("%w: stored message: %w", ErrMalformed, d.err)
	case magic != magicV1 && magic != magicV2:
		return Stored{}, fmt.Errorf("%w: stored message with magic %#x", ErrMalformed, magic)
	case int64(size) != int64(len(b)):
		return Stored{}, fmt.Errorf("%w: stored message of %d bytes says %d", ErrMalformed, len(b), size)
	case m.Topic == "":
		return Stored{}, errors.Join(ErrMalformed, errors.New("stored message without topic"))
	}
	return m, nil
}

func hostLen(flag, v6 uint32) int64 {
	if flag&v6 != 0 {
		return 16 + 4
	}
	return 4 + 4
}

// properties reads name 0x01 value 0x02 pairs.
func properties(text string) map[string]string {
	props := map[string]string{}
	for pair := range strings.SplitSeq(text, "\x02") {
		if name, value, ok := strings.Cut(pair, "\x01"); ok {
			props[name] = value
		}
	}
	return props
}
