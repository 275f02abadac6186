package remoting

import (
	"encoding/binary"
	"errors"
	"maps"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// stored is a message as the broker keeps it. With v6 both hosts have 16 bytes.
func stored(magic uint32, v6 bool, topic, props string) []byte {
	be := binary.BigEndian
	host, flag := make([]byte, 8), uint32(0)
	if v6 {
		host, flag = make([]byte, 20), storeHostV6|bornHostV6
	}
	b := be.AppendUint32(nil, 0)
	b = be.AppendUint32(b, magic)
	b = append(b, make([]byte, 4+4+4)...)
	b = be.AppendUint64(b, 7)
	b = be.AppendUint64(b, 1234)
	b = be.AppendUint32(b, flag)
	b = append(append(b, make([]byte, 8)...), host...)
	b = append(append(b, make([]byte, 8)...), host...)
	b = be.AppendUint32(b, 3)
	b = be.AppendUint64(b, 0)
	b = append(be.AppendUint32(b, 4), "body"...)
	if magic == magicV2 {
		b = be.AppendUint16(b, uint16(len(topic)))
	} else {
		b = append(b, byte(len(topic)))
	}
	b = append(b, topic...)
	b = append(be.AppendUint16(b, uint16(len(props))), props...)
	be.PutUint32(b, uint32(len(b)))
	return b
}

const storedProps = "a\x01b=c\x02UNIQ_KEY\x01id\x02empty\x01\x02"

func TestDecodeStored(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "b=c", "UNIQ_KEY": "id", "empty": ""}
	for _, v6 := range []bool{false, true} {
		for _, magic := range []uint32{magicV1, magicV2} {
			b := stored(magic, v6, "orders", storedProps)
			m, err := DecodeStored(b)
			if err != nil || m.Topic != "orders" || !maps.Equal(m.Properties, want) {
				t.Errorf("DecodeStored(%#x, %v) = %+v, %v", magic, v6, m, err)
			}
			for n := range b { // cut anywhere
				if m, err := DecodeStored(b[:n]); !errors.Is(err, ErrMalformed) {
					t.Fatalf("DecodeStored of %d bytes = %+v, %v; want ErrMalformed", n, m, err)
				}
			}
		}
		// As the client reads it.
		theirs := primitive.DecodeMessage(stored(magicV1, v6, "orders", storedProps))
		if len(theirs) != 1 || theirs[0].Topic != "orders" || theirs[0].GetProperty("a") != "b=c" {
			t.Errorf("the client reads %v", theirs)
		}
	}
	for name, b := range map[string][]byte{
		"another magic":   stored(1, false, "orders", ""),
		"no topic":        stored(magicV1, false, "", ""),
		"one byte behind": append(stored(magicV1, false, "orders", ""), 0),
	} {
		if m, err := DecodeStored(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: DecodeStored = %+v, %v; want ErrMalformed", name, m, err)
		}
	}
}

// FuzzDecodeStored: any bytes give a message with a topic, or an error.
func FuzzDecodeStored(f *testing.F) {
	f.Add(stored(magicV1, false, "orders", storedProps))
	f.Add(stored(magicV2, true, "orders", storedProps))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := DecodeStored(b); (err == nil) != (m.Topic != "") {
			t.Errorf("DecodeStored = %+v, %v", m, err)
		}
	})
}
