package remoting

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sameFields compares what Frame exports: raw says only where a frame is from.
var sameFields = cmp.Options{cmpopts.IgnoreUnexported(Frame{}), cmpopts.EquateEmpty()}

const (
	// A response as the Java broker writes it: no remark, a field we do not know.
	javaResponse = "\x00\x00\x00\x8a\x00\x00\x00\x84" +
		`{"code":0,"extFields":{"queueOffset":"7","msgId":"A\u0001B"},"flag":1,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON"}` +
		"ok"
	// A request as the Go client writes it: null where there is nothing.
	goRequest = "\x00\x00\x00\x61\x00\x00\x00\x5d" +
		`{"code":34,"language":"GO","version":317,"opaque":9,"flag":0,"remark":"","extFields":null}   `
	binaryRequest = "\x00\x00\x00\x36\x01\x00\x00\x2f" +
		"\x00\x0b" + "\x09" + "\x01\x3d" + "\x00\x00\x00\x2a" + "\x00\x00\x00\x02" +
		"\x00\x00\x00\x03why" +
		"\x00\x00\x00\x17" + "\x00\x05topic\x00\x00\x00\x01t" + "\x00\x01e\x00\x00\x00\x04\x01\x02\xffz" +
		"\x62\x6f\x64"
)

var wire = map[string]struct {
	bytes string
	want  Frame
}{
	"JSON response of a Java broker": {javaResponse, Frame{
		Opaque: 5, Flag: FlagResponse, Body: []byte("ok"),
		ExtFields: map[string]string{"queueOffset": "7", "msgId": "A\x01B"},
	}},
	"JSON request of the Go client": {goRequest, Frame{
		Code: Heartbeat, Language: LanguageGo, Version: 317, Opaque: 9,
	}},
	"binary request with bytes that are not UTF-8": {binaryRequest, Frame{
		Code: PullMessage, Language: LanguageGo, Version: 317, Opaque: 42, Flag: FlagOneWay, Remark: "why",
		ExtFields: map[string]string{"topic": "t", "e": "\x01\x02\xffz"},
		Body:      []byte("bod"), Encoding: Binary,
	}},
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, tc := range wire {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := Read(iotest.OneByteReader(strings.NewReader(tc.bytes+"next")), MaxFrame)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, f, sameFields); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			if f.ExtFields == nil {
				t.Error("ExtFields = nil, want a map to write to")
			}
			if got := string(f.Raw()); got != tc.bytes {
				t.Errorf("Raw = %q, want %q", got, tc.bytes)
			}
			if got, err := f.Append([]byte("before")); err != nil || string(got) != "before"+tc.bytes {
				t.Errorf("Append = %q, %v, want the bytes read", got, err)
			}
		})
	}
}

func TestAppendFollowsEveryChange(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*Frame){
		"code":     func(f *Frame) { f.Code++ },
		"language": func(f *Frame) { f.Language = LanguageOther },
		"version":  func(f *Frame) { f.Version++ },
		"opaque":   func(f *Frame) { f.Opaque++ },
		"flag":     func(f *Frame) { f.Flag ^= FlagResponse },
		"remark":   func(f *Frame) { f.Remark += "!" },
		"field":    func(f *Frame) { f.ExtFields["e"] = "other" },
		"no field": func(f *Frame) { f.ExtFields = nil },
		"body":     func(f *Frame) { f.Body = append(f.Body, "more"...) },
		"encoding": func(f *Frame) { f.Encoding = JSON },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := mustRead(t, strings.ReplaceAll(binaryRequest, "\xff", "f")) // JSON takes text only
			change(&f)
			b, err := f.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(f, mustRead(t, string(b)), sameFields); diff != "" {
				t.Errorf("after Append and Read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	check := func(code, version int16, lang uint8, opaque, flag int32, remark string, fields map[string]string, body []byte, binary bool) bool {
		f := Frame{
			Code: int(code), Language: Language(lang % 14), Version: int(version), Opaque: opaque, Flag: flag,
			Remark: remark, ExtFields: fields, Body: body,
		}
		if binary {
			f.Encoding = Binary
		}
		b, err := f.Append(nil)
		if err != nil {
			t.Logf("Append: %v", err)
			return false
		}
		diff := cmp.Diff(f, mustRead(t, string(b)), sameFields)
		if diff != "" {
			t.Log(diff)
		}
		return diff == ""
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	header := func(s string) string {
		return "\x00\x00\x00" + string(rune(4+len(s))) + "\x01\x00\x00" + string(rune(len(s))) + s
	}
	fixed := "\x00\x0b\x09\x01\x3d\x00\x00\x00\x2a\x00\x00\x00\x02"
	for name, tc := range map[string]struct {
		bytes string
		want  error
	}{
		"nothing":                 {"", io.EOF},
		"half a length":           {"\x00\x00", io.ErrUnexpectedEOF},
		"half a frame":            {javaResponse[:50], io.ErrUnexpectedEOF},
		"too short":               {"\x00\x00\x00\x03\x00\x00\x00", ErrMalformed},
		"too long":                {"\x01\x00\x00\x01\x00\x00\x00\x00", ErrMalformed},
		"negative length":         {"\xff\xff\xff\xff\x00\x00\x00\x00", ErrMalformed},
		"header beyond the frame": {"\x00\x00\x00\x04\x00\x00\x00\x01", ErrMalformed},
		"unknown encoding":        {"\x00\x00\x00\x04\x02\x00\x00\x00", ErrMalformed},
		"no JSON":                 {"\x00\x00\x00\x05\x00\x00\x00\x01{", ErrMalformed},
		"binary header cut":       {header(fixed[:12]), ErrMalformed},
		"negative remark":         {header(fixed + "\xff\xff\xff\xff\x00\x00\x00\x00"), ErrMalformed},
		"remark beyond header":    {header(fixed + "\x00\x00\x00\x09a"), ErrMalformed},
		"fields beyond header":    {header(fixed + "\x00\x00\x00\x00\x7f\xff\xff\xff"), ErrMalformed},
		"field name cut":          {header(fixed + "\x00\x00\x00\x00\x00\x00\x00\x03\x00\x05k"), ErrMalformed},
		"field value cut":         {header(fixed + "\x00\x00\x00\x00\x00\x00\x00\x08\x00\x01k\x00\x00\x00\x09v"), ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f, err := Read(strings.NewReader(tc.bytes), MaxFrame); !errors.Is(err, tc.want) {
				t.Errorf("Read = %+v, %v, want %v", f, err, tc.want)
			}
		})
	}
}

// Not parallel: it looks at what the whole process allocates.
func TestReadAllocatesByWhatArrives(t *testing.T) {
	claim := "\x7f\xff\xff\xff\x00\x00\x00\x00" // 2 GB announced, 4 bytes sent
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(strings.NewReader(claim), 1<<31-1)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Read = %v, want %v", err, io.ErrUnexpectedEOF)
	}
	got := after.TotalAlloc - before.TotalAlloc
	if got > 256<<10 {
		t.Errorf("Read of a false length allocates %d bytes, want at most %d", got, 256<<10)
	}
}

func TestReadLargeBody(t *testing.T) {
	t.Parallel()
	f := Request(SendMessage, map[string]string{"topic": "t"}, bytes.Repeat([]byte("abcdefg"), 600_000))
	b, err := f.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, string(b)); !bytes.Equal(got.Body, f.Body) {
		t.Errorf("Read = %d bytes of body, want the %d written", len(got.Body), len(f.Body))
	}
	if _, err := Read(bytes.NewReader(b), len(b)-5); !errors.Is(err, ErrMalformed) {
		t.Errorf("Read of one byte too many = %v, want %v", err, ErrMalformed)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Frame{
		"code beyond 16 bits":    {Code: 200050, Encoding: Binary},
		"version beyond 16 bits": {Version: 1 << 15, Encoding: Binary},
		"code beyond 32 bits":    {Code: 1 << 31},
		"remark not UTF-8":       {Remark: "\xff"},
		"field not UTF-8":        {ExtFields: map[string]string{"k": "\xff"}},
		"long field name":        {ExtFields: map[string]string{strings.Repeat("k", 1<<15): ""}, Encoding: Binary},
		"header beyond 24 bits":  {Remark: strings.Repeat("k", 1<<24), Encoding: Binary},
		"unknown encoding":       {Encoding: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if b, err := f.Append(nil); err == nil {
				t.Errorf("Append = %d bytes, want an error", len(b))
			}
			if err := f.Write(io.Discard); err == nil {
				t.Error("Write = nil, want an error")
			}
		})
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	req := mustRead(t, binaryRequest)
	res := req.Reply(ResTopicNotExist)
	if !req.IsOneWay() || req.IsResponse() || !res.IsResponse() || res.IsOneWay() {
		t.Errorf("flags of request and reply = %b, %b", req.Flag, res.Flag)
	}
	if res.Opaque != 42 || res.Encoding != Binary || res.Code != ResTopicNotExist {
		t.Errorf("Reply = %+v, want opaque 42, binary, code 17", res)
	}
}

// FuzzRead: Read never panics; what it takes, Append gives back byte for byte,
// and the fields alone, without those bytes, survive a round trip.
func FuzzRead(f *testing.F) {
	for _, tc := range wire {
		f.Add([]byte(tc.bytes))
		f.Add([]byte(tc.bytes[:len(tc.bytes)-3]))
	}
	f.Add([]byte("\x00\x00\x00\x04\x02\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x12\x00\x00\x00\x0e" + `{"remark":"\u` + "\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Read(bytes.NewReader(b), 1<<20)
		if err != nil {
			return
		}
		back, err := frame.Append(nil)
		if err != nil || !bytes.Equal(back, b[:len(back)]) {
			t.Fatalf("Append = %q, %v, want the bytes read %q", back, err, b)
		}
		made := frame
		made.raw = nil
		made.ExtFields = maps.Clone(frame.ExtFields)
		if made.Encoding == JSON && int(made.Language) >= len(languages) {
			return
		}
		back, err = made.Append(nil)
		if err != nil {
			t.Fatalf("Append of %+v = %v", made, err)
		}
		if diff := cmp.Diff(made, mustRead(t, string(back)), sameFields); diff != "" {
			t.Fatalf("Read of what Append made (-want +got):\n%s", diff)
		}
	})
}

func mustRead(t *testing.T, b string) Frame {
	t.Helper()
	r := strings.NewReader(b)
	f, err := Read(r, MaxFrame)
	if err != nil {
		t.Fatalf("Read(%q) = %v", b, err)
	}
	return f
}
