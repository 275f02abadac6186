package model

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// rawBytes is how a value stands in the column that is not valid UTF-8: JSON
// would put other characters for its bytes, and an event ID be another's.
type rawBytes struct {
	Base64 []byte `json:"base64"`
}

// encodeProperties is a JSON object, for people too: texts, but for values that
// are none.
func encodeProperties(properties map[string]string) ([]byte, error) {
	object := make(map[string]any, len(properties))
	for name, value := range properties {
		object[name] = value
		if !utf8.ValidString(value) {
			object[name] = rawBytes{[]byte(value)}
		}
	}
	return json.Marshal(object)
}

func decodeProperties(text []byte) (map[string]string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("properties of the row: %w", err)
	}
	properties := make(map[string]string, len(object))
	for name, value := range object {
		var s string
		var raw rawBytes
		if json.Unmarshal(value, &s) == nil {
			properties[name] = s
		} else if err := json.Unmarshal(value, &raw); err == nil {
			properties[name] = string(raw.Base64)
		} else {
			return nil, fmt.Errorf("property %q of the row: %w", name, err)
		}
	}
	return properties, nil
}
