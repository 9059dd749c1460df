package bus

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// maxBody is the largest body that is looked at, in bytes: what a broker takes by default.
	maxBody = 1 << 20
	// maxDepth is how deep a request may nest: the object, and one list or object in it.
	maxDepth = 2
	// maxFieldName bounds how much of an unknown field's name an error repeats.
	maxFieldName = 64

	whyToken     = "must be 1 to 64 of A-Z a-z 0-9 _ -"
	whyPrincipal = "must be 1 to 128 printable ASCII characters without spaces"
)

// decodeStrict fills the struct that into points to from one JSON object and returns the names of the fields that
// were there. encoding/json alone is too kind for a contract: it matches names in any case, keeps the last of two
// equal keys, takes null for everything and replaces what is no text.
func decodeStrict(data []byte, into any) (map[string]bool, *InvalidRequest) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	if err := checkShape(data); err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, invalid("", "is not a JSON object")
	}
	fields := fieldsOf(into)
	present := make(map[string]bool, len(raw))
	names := make([]string, 0, len(raw))
	for name := range raw {
		names = append(names, name)
	}
	slices.Sort(names) // one body always gives the same complaint
	for _, name := range names {
		field, ok := fields[name]
		if !ok {
			return nil, invalid(clip(name), "is not a known field")
		}
		if err := json.Unmarshal(raw[name], field.Addr().Interface()); err != nil {
			return nil, invalid(name, "must be "+describe(field.Type()))
		}
		present[name] = true
	}
	return present, nil
}

// checkText refuses what is no bounded, well-formed JSON text.
func checkText(data []byte) *InvalidRequest {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return invalid("", "is empty")
	case len(data) > maxBody:
		return invalid("", "is larger than 1 MiB")
	case !utf8.Valid(data):
		return invalid("", "is not valid UTF-8")
	case !json.Valid(data):
		return invalid("", "is not one JSON object")
	case hasLoneSurrogate(data):
		return invalid("", "holds an escape that is half a character")
	}
	return nil
}

// hasLoneSurrogate finds \ud800 escapes without their other half; encoding/json would silently run another command.
// In valid JSON a backslash stands only in strings.
func hasLoneSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		if data[i] != 'u' {
			continue
		}
		hi := hex4(data[i+1:])
		i += 4
		if hi < 0xd800 || hi > 0xdfff {
			continue
		}
		if hi >= 0xdc00 || i+6 >= len(data) || data[i+1] != '\\' || data[i+2] != 'u' {
			return true
		}
		if lo := hex4(data[i+3:]); lo < 0xdc00 || lo > 0xdfff {
			return true
		}
		i += 6
	}
	return false
}

func hex4(b []byte) (n int) {
	for _, c := range b[:4] {
		n <<= 4
		switch {
		case c >= '0' && c <= '9':
			n |= int(c - '0')
		default:
			n |= int(c|0x20-'a') + 10
		}
	}
	return n
}

// checkShape walks the text once: an object, flat, without equal keys, null or NUL.
func checkShape(data []byte) *InvalidRequest {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tok, err := dec.Token()
	if d, ok := tok.(json.Delim); err != nil || !ok || d != '{' {
		return invalid("", "is not one JSON object")
	}
	return checkObject(dec, "", 1)
}

func checkObject(dec *json.Decoder, path string, depth int) *InvalidRequest {
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		name, ok := tok.(string)
		if err != nil || !ok {
			return invalid(path, "is not valid JSON")
		}
		at := path
		if depth == 1 {
			at = clip(name) // nested names are the caller's data (env): they are not repeated
		}
		if seen[name] {
			return invalid(at, "names something twice")
		}
		seen[name] = true
		if strings.ContainsRune(name, 0) {
			return invalid(at, "holds a NUL character")
		}
		if err := checkValue(dec, at, depth); err != nil {
			return err
		}
	}
	_, _ = dec.Token() // the closing brace, known to be there
	return nil
}

func checkValue(dec *json.Decoder, path string, depth int) *InvalidRequest {
	tok, err := dec.Token()
	if err != nil {
		return invalid(path, "is not valid JSON")
	}
	switch v := tok.(type) {
	case nil:
		return invalid(path, "must not be null; leave it out")
	case string:
		if strings.ContainsRune(v, 0) {
			return invalid(path, "holds a NUL character")
		}
	case json.Delim:
		if depth >= maxDepth {
			return invalid(path, "nests too deep")
		}
		if v == '{' {
			return checkObject(dec, path, depth+1)
		}
		for dec.More() {
			if err := checkValue(dec, path, depth+1); err != nil {
				return err
			}
		}
		_, _ = dec.Token()
	}
	return nil
}

// fieldsOf maps the JSON names of a struct's fields to the fields.
func fieldsOf(into any) map[string]reflect.Value {
	v := reflect.ValueOf(into).Elem()
	fields := make(map[string]reflect.Value, v.NumField())
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}

var timeType = reflect.TypeFor[*time.Time]()

func describe(t reflect.Type) string {
	switch {
	case t == timeType:
		return "an RFC 3339 time with its zone"
	case t == reflect.TypeFor[[]byte]():
		return "base64 text"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list of strings"
	case t.Kind() == reflect.Map:
		return "an object of strings"
	case t.Kind() == reflect.Pointer:
		return describe(t.Elem())
	}
	return "a whole number"
}

func clip(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), maxFieldName)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
}

// The checks that several requests share. The first fault wins.

func firstFault(faults ...*InvalidRequest) error {
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}

func checkVersion(v int) *InvalidRequest {
	if v != 1 {
		return invalid("v", "must be 1")
	}
	return nil
}

func checkToken(field, s string) *InvalidRequest {
	if !plan.ValidToken(s) {
		return invalid(field, whyToken)
	}
	return nil
}

func checkOptionalToken(field, s string, present bool) *InvalidRequest {
	if !present {
		return nil
	}
	return checkToken(field, s)
}

func checkPrincipal(field, s string, present bool) *InvalidRequest {
	if present && !plan.ValidPrincipal(s) {
		return invalid(field, whyPrincipal)
	}
	return nil
}

func checkRange(field string, n, low, high int64, present bool, why string) *InvalidRequest {
	if present && (n < low || n > high) {
		return invalid(field, why)
	}
	return nil
}

func checkOneOf(field, s string, present bool, allowed ...string) *InvalidRequest {
	if present && !slices.Contains(allowed, s) {
		return invalid(field, "must be "+strings.Join(allowed, " or "))
	}
	return nil
}
