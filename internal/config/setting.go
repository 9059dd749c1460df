package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Setting is one row of the table.
type Setting struct {
	// Variable is the environment variable's name.
	Variable string
	// Field is the field of Config.
	Field string
	// Type is what a value looks like: text, number, duration, size, …
	Type string
	// Default is the value of an unset variable as it would be written; "" = none.
	Default string
	// Unit is what a number counts, or what a text names.
	Unit string
	// Min and Max bound numbers, durations and sizes, as they would be written; "" = no bound.
	Min, Max string
	// Secret says that the value is never printed and may come as Variable_FILE.
	Secret bool
	// Roles are the processes that read it.
	Roles []Role
	// Doc says what it means.
	Doc string
}

// FileVariable is the name of the variable that names a file with the value; "" for what is no secret.
func (s Setting) FileVariable() string {
	if !s.Secret {
		return ""
	}
	return s.Variable + "_FILE"
}

// ReadBy reports whether a role reads the setting.
func (s Setting) ReadBy(role Role) bool { return slices.Contains(s.Roles, role) }

var typeNames = map[reflect.Type]string{
	reflect.TypeFor[string]():        "text",
	reflect.TypeFor[int]():           "number",
	reflect.TypeFor[time.Duration](): "duration",
	reflect.TypeFor[Size]():          "size",
	reflect.TypeFor[Secret]():        "secret",
	reflect.TypeFor[URL]():           "URL",
	reflect.TypeFor[Switch]():        "switch",
	reflect.TypeFor[AuthMode]():      "word",
	reflect.TypeFor[Level]():         "word",
	reflect.TypeFor[Addr]():          "host:port",
	reflect.TypeFor[List]():          "list",
	reflect.TypeFor[TierLimits]():    "list",
}

// Settings lists the table in its order. The caller may keep the slice.
func Settings() []Setting {
	t := reflect.TypeFor[Config]()
	all := make([]Setting, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		s := Setting{
			Variable: f.Tag.Get("env"), Field: f.Name, Type: typeNames[f.Type], Default: f.Tag.Get("default"),
			Unit: f.Tag.Get("unit"), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
			Secret: f.Tag.Get("secret") == "yes", Doc: f.Tag.Get("doc"),
		}
		for _, r := range strings.Fields(f.Tag.Get("roles")) {
			s.Roles = append(s.Roles, Role(r))
		}
		all = append(all, s)
	}
	return all
}

// parsers replaces every parser of the library, whose own errors quote the value.
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[string]():        func(v string) (any, error) { return v, nil },
	reflect.TypeFor[Secret]():        func(v string) (any, error) { return Secret(v), nil },
	reflect.TypeFor[Switch]():        func(v string) (any, error) { return Switch(v), nil },
	reflect.TypeFor[URL]():           func(v string) (any, error) { return URL(v), nil },
	reflect.TypeFor[int]():           func(v string) (any, error) { return parseInt(v) },
	reflect.TypeFor[time.Duration](): func(v string) (any, error) { return ParseDuration(v) },
	reflect.TypeFor[Size]():          func(v string) (any, error) { return ParseSize(v) },
	reflect.TypeFor[AuthMode]():      func(v string) (any, error) { return parseMode(v) },
	reflect.TypeFor[Level]():         func(v string) (any, error) { return parseLevel(v) },
	reflect.TypeFor[Addr]():          func(v string) (any, error) { return parseAddr(v) },
	reflect.TypeFor[List]():          func(v string) (any, error) { return parseList(v) },
	reflect.TypeFor[TierLimits]():    func(v string) (any, error) { return ParseTierLimits(v) },
}

// parse fills c from values and defaults and says by variable what could not be read. A field that could not keeps
// its default, so that one bad setting changes no other.
func parse(c *Config, values map[string]string) map[string]string {
	bad := map[string]string{}
	for {
		err := env.ParseWithOptions(c, env.Options{
			Environment: values, DefaultValueTagName: "default", FuncMap: parsers,
		})
		again := false
		for _, s := range Settings() {
			why := parseFailure(err, s.Field)
			if why == "" {
				why = outOfBounds(*c, s)
			}
			if _, set := values[s.Variable]; why != "" && set {
				bad[s.Variable] = why
				delete(values, s.Variable)
				again = true
			}
		}
		if !again {
			return bad
		}
	}
}

func parseFailure(err error, field string) string {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return ""
	}
	for _, e := range all.Errors {
		var one env.ParseError
		if errors.As(e, &one) && one.Name == field {
			return one.Err.Error()
		}
	}
	return ""
}

func outOfBounds(c Config, s Setting) string {
	if s.Min == "" {
		return ""
	}
	var n, low, high int64
	switch v := reflect.ValueOf(c).FieldByName(s.Field).Interface().(type) {
	case int:
		n, low, high = int64(v), mustInt(s.Min), mustInt(s.Max)
	case time.Duration:
		n, low, high = int64(v), mustDuration(s.Min), mustDuration(s.Max)
	case Size:
		n, low, high = int64(v), mustSize(s.Min), mustSize(s.Max)
	}
	if n < low || n > high {
		return fmt.Sprintf("must be from %s to %s", s.Min, s.Max)
	}
	return ""
}

// The bounds are written in this package's own tags; a test reads all of them, so these cannot fail elsewhere.
func mustInt(text string) int64 {
	n, err := parseInt(text)
	if err != nil {
		panic("config: bound is no number: " + text)
	}
	return int64(n)
}

func mustDuration(text string) int64 {
	d, err := ParseDuration(text)
	if err != nil {
		panic("config: bound is no duration: " + text)
	}
	return int64(d)
}

func mustSize(text string) int64 {
	n, err := ParseSize(text)
	if err != nil {
		panic("config: bound is no size: " + text)
	}
	return int64(n)
}
