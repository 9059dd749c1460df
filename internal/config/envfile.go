package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// MaxEnvFile is the largest env file that is read, in bytes.
const MaxEnvFile = 1 << 20

// FormatEnv writes variables as KEY=VALUE lines that sh can source and ParseEnv reads back, in the order of their
// names. It refuses names that are no shell variables, and values with a NUL or a line end.
func FormatEnv(values map[string]string) ([]byte, error) {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		if !shellName(name) {
			return nil, fmt.Errorf("format env file: %q is no variable name", name)
		}
		if strings.ContainsAny(values[name], "\x00\r\n") {
			return nil, fmt.Errorf("format env file: the value of %s holds a NUL or a line end", name)
		}
		b.WriteString(name + "=" + shellQuote(values[name]) + "\n")
	}
	return []byte(b.String()), nil
}

// ParseEnv reads what FormatEnv writes, and plain KEY=VALUE lines with comments and blank lines between. Nothing is
// expanded. Errors name the line and the variable, never the value.
func ParseEnv(data []byte) (map[string]string, error) {
	values := map[string]string{}
	var errs []error
	number := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		number++
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, raw, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || !shellName(name) {
			errs = append(errs, fmt.Errorf("line %d is not KEY=VALUE", number))
			continue
		}
		value, err := shellUnquote(raw)
		switch _, twice := values[name]; {
		case err != nil:
			errs = append(errs, fmt.Errorf("line %d: the value of %s %w", number, name, err))
		case twice:
			errs = append(errs, fmt.Errorf("line %d: %s is set twice", number, name))
		default:
			values[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return values, nil
}

// ReadEnvFile reads an env file that a person named with --env-file.
func ReadEnvFile(path string) (map[string]string, error) {
	data, err := readBounded(path, MaxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("read env file %s: %w", path, err)
	}
	values, err := ParseEnv(data)
	if err != nil {
		return nil, fmt.Errorf("read env file %s: %w", path, err)
	}
	return values, nil
}

// First returns a lookup that asks each of the given ones in turn.
func First(lookups ...func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, lookup := range lookups {
			if value, ok := lookup(name); ok {
				return value, true
			}
		}
		return "", false
	}
}

// In is the lookup of a map. It keeps the map.
func In(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("is larger than %d bytes", limit)
	}
	return data, err
}

func shellName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

const shellPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%"

// shellQuote leaves alone what no shell would touch and puts the rest into single quotes.
func shellQuote(value string) string {
	if value != "" && strings.Trim(value, shellPlain) == "" {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// shellUnquote reads one word made of plain parts, single quotes, double quotes without expansions, and \'.
func shellUnquote(raw string) (string, error) {
	var b strings.Builder
	for raw != "" {
		switch raw[0] {
		case '\'', '"':
			end := strings.IndexByte(raw[1:], raw[0])
			if end < 0 {
				return "", errors.New("has an open quote")
			}
			part := raw[1 : 1+end]
			if raw[0] == '"' && strings.ContainsAny(part, "\\$`") {
				return "", errors.New("has an expansion in double quotes; use single ones")
			}
			b.WriteString(part)
			raw = raw[end+2:]
		case '\\':
			if !strings.HasPrefix(raw, `\'`) {
				return "", errors.New("has a backslash outside quotes")
			}
			b.WriteByte('\'')
			raw = raw[2:]
		case ' ', '\t', '$', '`', ';', '&', '|', '<', '>', '(', ')', 0:
			return "", errors.New("must stand in single quotes")
		default:
			b.WriteByte(raw[0])
			raw = raw[1:]
		}
	}
	return b.String(), nil
}
