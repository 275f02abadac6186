package remoting

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// Language is the number of the peer's programming language.
type Language byte

// The languages that matter here; the others keep their number.
const (
	LanguageJava  Language = 0
	LanguageOther Language = 7
	LanguageGo    Language = 9
)

// languages are RocketMQ's names in the order of their numbers; the JSON
// encoding writes the name.
var languages = [...]string{"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"}

// String is RocketMQ's name, "OTHER" for a number it has no name for.
func (l Language) String() string {
	if int(l) < len(languages) {
		return languages[l]
	}
	return languages[LanguageOther]
}

func languageOf(name string) Language {
	if i := slices.Index(languages[:], name); i >= 0 {
		return Language(i)
	}
	return LanguageOther
}

// jsonHeader has the fields that brokers and clients write; others, such as
// serializeTypeCurrentRPC, only repeat what the frame says.
type jsonHeader struct {
	Code      int32             `json:"code"`
	ExtFields map[string]string `json:"extFields,omitempty"`
	Flag      int32             `json:"flag"`
	Language  string            `json:"language"`
	Opaque    int32             `json:"opaque"`
	Remark    string            `json:"remark,omitempty"`
	Version   int32             `json:"version"`
}

func decodeJSON(b []byte) (Frame, error) {
	h := jsonHeader{ExtFields: map[string]string{}}
	if err := json.Unmarshal(b, &h); err != nil {
		return Frame{}, err
	}
	if h.ExtFields == nil { // "extFields":null
		h.ExtFields = map[string]string{}
	}
	return Frame{
		Code:      int(h.Code),
		Language:  languageOf(h.Language),
		Version:   int(h.Version),
		Opaque:    h.Opaque,
		Flag:      h.Flag,
		Remark:    h.Remark,
		ExtFields: h.ExtFields,
	}, nil
}

func appendJSON(dst []byte, f Frame) ([]byte, error) {
	if f.Code != int(int32(f.Code)) || f.Version != int(int32(f.Version)) {
		return nil, fmt.Errorf("code %d or version %d beyond 32 bits", f.Code, f.Version)
	}
	if !utf8.ValidString(f.Remark) {
		return nil, fmt.Errorf("remark %q is not UTF-8", f.Remark)
	}
	for k, v := range f.ExtFields {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, fmt.Errorf("field %q: %q is not UTF-8", k, v)
		}
	}
	b, err := json.Marshal(jsonHeader{
		Code:      int32(f.Code),
		ExtFields: f.ExtFields,
		Flag:      f.Flag,
		Language:  f.Language.String(),
		Opaque:    f.Opaque,
		Remark:    f.Remark,
		Version:   int32(f.Version),
	})
	return append(dst, b...), err
}

// The binary header:
//
//	int16 code, int8 language, int16 version, int32 opaque, int32 flag,
//	int32 length and bytes of the remark,
//	int32 length of the fields, each int16 length, key, int32 length, value
//
// What follows the fields is ignored, as RocketMQ's own decoders do.
func decodeBinary(b []byte) (Frame, error) {
	d := cutter{b: b}
	f := Frame{
		Code:      int(int16(d.uint16())),
		Language:  Language(d.uint8()),
		Version:   int(int16(d.uint16())),
		Opaque:    int32(d.uint32()),
		Flag:      int32(d.uint32()),
		Remark:    string(d.next(int64(d.uint32()))),
		ExtFields: map[string]string{},
	}
	fields := cutter{b: d.next(int64(d.uint32()))}
	for d.err == nil && fields.err == nil && len(fields.b) > 0 {
		k := fields.next(int64(fields.uint16()))
		v := fields.next(int64(fields.uint32()))
		f.ExtFields[string(k)] = string(v)
	}
	return f, errors.Join(d.err, fields.err)
}

func appendBinary(dst []byte, f Frame) ([]byte, error) {
	if f.Code != int(int16(f.Code)) || f.Version != int(int16(f.Version)) {
		return nil, fmt.Errorf("code %d or version %d beyond 16 bits", f.Code, f.Version)
	}
	be := binary.BigEndian
	dst = be.AppendUint16(dst, uint16(f.Code))
	dst = append(dst, byte(f.Language))
	dst = be.AppendUint16(dst, uint16(f.Version))
	dst = be.AppendUint32(dst, uint32(f.Opaque))
	dst = be.AppendUint32(dst, uint32(f.Flag))
	dst = be.AppendUint32(dst, uint32(len(f.Remark)))
	dst = append(dst, f.Remark...)

	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, k := range slices.Sorted(maps.Keys(f.ExtFields)) {
		if len(k) > math.MaxInt16 {
			return nil, fmt.Errorf("field name of %d bytes", len(k))
		}
		v := f.ExtFields[k]
		dst = be.AppendUint16(dst, uint16(len(k)))
		dst = append(dst, k...)
		dst = be.AppendUint32(dst, uint32(len(v)))
		dst = append(dst, v...)
	}
	be.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

// cutter takes pieces off the front of b. After a piece that is not there it
// has an error, and every further piece is empty.
type cutter struct {
	b   []byte
	err error
}

func (c *cutter) next(n int64) []byte {
	if c.err == nil && n > int64(len(c.b)) {
		c.err = fmt.Errorf("%d bytes announced, %d left", n, len(c.b))
		c.b = nil
	}
	if c.err != nil {
		return nil
	}
	piece := c.b[:n]
	c.b = c.b[n:]
	return piece
}

func (c *cutter) uint8() uint8 {
	if p := c.next(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cutter) uint16() uint16 {
	if p := c.next(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *cutter) uint32() uint32 {
	if p := c.next(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}
