package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Secret is a value that prints as dots everywhere but through Reveal.
type Secret string

const redacted = "••••••"

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String redacts.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString redacts, so that %#v does as well.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText redacts, so that JSON and log fields do as well.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// URL is an address that may hold a password; it prints without user and password everywhere but through Reveal.
type URL string

// Reveal returns the address itself, with user and password.
func (u URL) Reveal() string { return string(u) }

// String is the address without user and password.
func (u URL) String() string {
	parts := strings.Split(string(u), ",")
	for i, part := range parts {
		parts[i] = redactURL(strings.TrimSpace(part))
	}
	return strings.Join(parts, ",")
}

// GoString redacts, so that %#v does as well.
func (u URL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText redacts, so that JSON and log fields do as well.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Loopback reports whether every server of the address is on this machine's loopback, by what is written, without a
// look-up: a name other than localhost is none. Cluster forms name further servers in the query; they count too.
func (u URL) Loopback() bool {
	if u == "" {
		return false
	}
	for part := range strings.SplitSeq(string(u), ",") {
		hosts := []string{hostOf(part)}
		if _, query, ok := strings.Cut(part, "?"); ok {
			values, err := url.ParseQuery(query)
			if err != nil {
				return false
			}
			for _, further := range values["addr"] {
				hosts = append(hosts, hostOf(further))
			}
		}
		for _, host := range hosts {
			if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
				return false
			}
		}
	}
	return true
}

func hostOf(server string) string {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

func redactURL(server string) string {
	head, rest, found := strings.Cut(server, "://")
	if !found {
		head, rest = "", server
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	// A password that was not encoded may hold a slash: then the part behind the last @ is the host.
	if strings.Contains(path, "@") {
		authority, path = rest, ""
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		authority = redacted + "@" + authority[i+1:]
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if head == "" && !found {
		return authority + path
	}
	return head + "://" + authority + path
}
