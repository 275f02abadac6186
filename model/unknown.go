package model

import (
	"bytes"
	"strings"
)

// unknownHash, all zeros, is the payload_hash of a row that was adopted from
// another's table, which kept none: any body matches it. No SHA-256 of a body is
// known to be zero.
var unknownHash = "X'" + strings.Repeat("00", 32) + "'"

func (r ConsumeRecord) unknownPayload() bool { return bytes.Equal(r.PayloadHash, make([]byte, 32)) }

// learn fills in, of such a row, what the first delivery that works on it tells:
// where the message lies and what its body's hash is. The hash comes last, since
// MySQL assigns from left to right.
var learn = func() string {
	var sets []string
	for _, column := range []string{"topic", "broker_name", "queue_id", "queue_offset", "msg_id", "offset_msg_id", "payload_hash"} {
		sets = append(sets, column+" = CASE WHEN payload_hash = "+unknownHash+" THEN ? ELSE "+column+" END")
	}
	return strings.Join(sets, ", ")
}()

// learned is what learn asks for.
func (a Arrival) learned() []any {
	place := a.withPlace()
	return append(place[1:], place[0])
}
