// Package remoting reads and writes RocketMQ's remoting frames, the unit of
// everything that passes between clients, brokers and name servers, and makes
// the few calls that the Go client has no public function for.
//
// A frame on the wire:
//
//	4 bytes  length of all that follows
//	1 byte   header encoding: 0 JSON, 1 RocketMQ binary
//	3 bytes  length of the header
//	header   code, language, version, opaque, flag, remark, extFields
//	body     the rest
//
// Invariants:
//   - A frame that was read and not changed is written byte for byte as it came.
//   - Reading allocates in proportion to the bytes that arrived, never to a length that a peer claims.
//   - No call outlives its context, and none leaves a connection or a goroutine behind.
package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MaxFrame is the length that brokers and name servers refuse to go beyond
// unless configured otherwise (com.rocketmq.remoting.frameMaxLength), in bytes.
const MaxFrame = 16 << 20

// ErrMalformed is in every error of Read that the bytes are to blame for. The
// stream cannot be trusted after it: close the connection.
var ErrMalformed = errors.New("malformed frame")

// Encoding is how a frame's header is written. Body and lengths are the same
// in both.
type Encoding byte

// The two encodings that brokers, name servers and clients know. To a binary
// request 4.9.7 answers in binary, 5.3.3 and 5.5.0 in JSON.
const (
	JSON   Encoding = 0
	Binary Encoding = 1
)

// Bits of Frame.Flag.
const (
	FlagResponse int32 = 1 << 0
	FlagOneWay   int32 = 1 << 1
)

// Frame is one request or response.
type Frame struct {
	// Code is the request code in a request, the result in a response (0 is
	// success). The binary encoding has room for 16 bits.
	Code int

	Language Language
	Version  int // of the peer's software, 16 bits in the binary encoding

	// Opaque pairs a response with its request. It is unique on one connection
	// and one direction only.
	Opaque int32

	Flag   int32
	Remark string // the reason, in a response that is not success

	// ExtFields are the named arguments. Read never leaves it nil.
	ExtFields map[string]string

	// Body is not copied by Read: it lies in the same memory as Raw.
	Body []byte

	Encoding Encoding

	raw []byte // as read, length included; nil in a frame made here
}

// IsResponse tells a response from a request.
func (f Frame) IsResponse() bool { return f.Flag&FlagResponse != 0 }

// IsOneWay tells that the sender asks for no response. The Go client does not
// set the bit, not even in what it calls one-way: it ignores the response.
func (f Frame) IsOneWay() bool { return f.Flag&FlagOneWay != 0 }

// Raw is the frame as it was read, length included; nil in a frame that was
// made here. It does not follow changes of the fields; Append does.
func (f Frame) Raw() []byte { return f.raw }

// Reply makes the response to f: same opaque, same encoding, no body yet.
func (f Frame) Reply(code int) Frame {
	return Frame{
		Code:      code,
		Language:  f.Language,
		Version:   f.Version,
		Opaque:    f.Opaque,
		Flag:      FlagResponse,
		ExtFields: map[string]string{},
		Encoding:  f.Encoding,
	}
}

// Read takes the next frame from r, and refuses one that is longer than most
// bytes. The error is io.EOF only if r ended between two frames.
func Read(r io.Reader, most int) (Frame, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return Frame{}, err
	}
	n := int64(binary.BigEndian.Uint32(prefix[:]))
	if n < 4 || n > int64(most) {
		return Frame{}, fmt.Errorf("%w: length %d, want 4 to %d", ErrMalformed, n, most)
	}
	raw, err := readGrowing(r, prefix[:], 4+int(n))
	if err != nil {
		return Frame{}, err
	}
	return decode(raw)
}

// readGrowing returns head and what follows it in r, size bytes in all. A
// claimed size costs no memory before the bytes arrive.
func readGrowing(r io.Reader, head []byte, size int) ([]byte, error) {
	const step = 64 << 10
	buf := append(make([]byte, 0, min(size, step)), head...)
	for len(buf) < size {
		n := min(size-len(buf), max(len(buf), step))
		have := len(buf)
		buf = slices.Grow(buf, n)[:have+n]
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

func decode(raw []byte) (Frame, error) {
	size := int(raw[5])<<16 | int(raw[6])<<8 | int(raw[7])
	if size > len(raw)-8 {
		return Frame{}, fmt.Errorf("%w: header of %d bytes in a frame of %d", ErrMalformed, size, len(raw)-4)
	}
	f, err := decodeHeader(Encoding(raw[4]), raw[8:8+size])
	if err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if body := raw[8+size:]; len(body) > 0 {
		f.Body = slices.Clip(body)
	}
	f.raw = raw
	return f, nil
}

func decodeHeader(e Encoding, header []byte) (f Frame, err error) {
	switch e {
	case JSON:
		f, err = decodeJSON(header)
	case Binary:
		f, err = decodeBinary(header)
	default:
		return Frame{}, fmt.Errorf("header encoding %d", e)
	}
	f.Encoding = e
	return f, err
}

// Append adds the frame to dst as it goes over the wire. It fails when the
// frame does not fit its encoding: a code beyond 16 bits in Binary, text that
// is not UTF-8 in JSON, which would arrive as other text.
func (f Frame) Append(dst []byte) ([]byte, error) {
	if f.raw != nil && f.unchanged() {
		return append(dst, f.raw...), nil
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(f.Encoding), 0, 0, 0)
	var err error
	switch f.Encoding {
	case JSON:
		dst, err = appendJSON(dst, f)
	case Binary:
		dst, err = appendBinary(dst, f)
	default:
		err = fmt.Errorf("header encoding %d", f.Encoding)
	}
	if err != nil {
		return nil, fmt.Errorf("remoting: write code %d: %w", f.Code, err)
	}
	header := len(dst) - start - 8
	if header >= 1<<24 {
		return nil, fmt.Errorf("remoting: write code %d: header of %d bytes, want < %d", f.Code, header, 1<<24)
	}
	dst = append(dst, f.Body...)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	dst[start+5], dst[start+6], dst[start+7] = byte(header>>16), byte(header>>8), byte(header)
	return dst, nil
}

// Write sends the frame with one call of w.Write.
func (f Frame) Write(w io.Writer) error {
	b, err := f.Append(nil)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// unchanged compares with a second reading of raw, so that no change of a
// field, the shared map included, can go unnoticed.
func (f Frame) unchanged() bool {
	was, err := decode(f.raw)
	return err == nil &&
		f.Encoding == was.Encoding &&
		f.Code == was.Code &&
		f.Language == was.Language &&
		f.Version == was.Version &&
		f.Opaque == was.Opaque &&
		f.Flag == was.Flag &&
		f.Remark == was.Remark &&
		maps.Equal(f.ExtFields, was.ExtFields) &&
		bytes.Equal(f.Body, was.Body)
}
