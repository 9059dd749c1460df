package plan

import (
	"net/netip"
	"strings"
)

// metadataV4 are the addresses at which clouds serve credentials to whoever asks from inside a machine.
var metadataV4 = map[uint32]string{
	0xA9FEA9FE: "169.254.169.254",
	0xA9FEAA02: "169.254.170.2",
	0xA9FEAA17: "169.254.170.23",
	0x646464C8: "100.100.100.200",
	0xC00000C0: "192.0.0.192",
}

var metadataV6 = map[netip.Addr]string{
	netip.MustParseAddr("fd00:ec2::254"):      "fd00:ec2::254",
	netip.MustParseAddr("fd00:ec2::23"):       "fd00:ec2::23",
	netip.MustParseAddr("fd20:ce::254"):       "fd20:ce::254",
	netip.MustParseAddr("fe80::a9fe:a9fe"):    "fe80::a9fe:a9fe",
	netip.MustParseAddr("fd00:42::42"):        "fd00:42::42",
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"): "fd00:c1::a9fe:a9fe",
}

// metadataNames are matched as a whole name or as the end of one.
var metadataNames = []string{
	"metadata.google.internal", "metadata.goog", "metadata.azure.internal", "metadata.azure.com",
	"instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com",
}

// metadataHosts are short names, matched only as the host of a URL, since they are common words.
var metadataHosts = []string{"metadata", "instance-data"}

// FindMetadataAddress looks for a cloud metadata address in text, in dotted, short, decimal, octal and hexadecimal
// forms, as IPv6 (also mapped, compatible, 6to4 and NAT64), inside a wildcard DNS name, by its DNS names, in any case,
// percent-encoded, in full-width or circled characters, and split by quotes or backslashes. It returns the address's
// usual spelling. Time is linear in the text.
func FindMetadataAddress(text string) (string, bool) {
	plain := foldText(text)
	variants := []string{plain}
	once := percentDecode(plain)
	if once != plain {
		once = foldText(once)
		variants = append(variants, once)
		if twice := percentDecode(once); twice != once {
			variants = append(variants, foldText(twice))
		}
	}
	for _, v := range variants {
		if name, found := findInFolded(v); found {
			return name, true
		}
		if bare := stripQuoting(v); bare != v {
			if name, found := findInFolded(bare); found {
				return name, true
			}
		}
	}
	return "", false
}

func findInFolded(text string) (string, bool) {
	for _, host := range metadataHosts {
		if urlHost(text, host) {
			return host, true
		}
	}
	return eachRun(text, func(run string) (string, bool) {
		if name, found := findV6(run); found {
			return name, true
		}
		for _, host := range strings.Split(run, ":") {
			if name, found := findHost(host); found {
				return name, true
			}
		}
		return "", false
	})
}

// eachRun gives find every run of characters that may stand in an address or a host name.
func eachRun(text string, find func(string) (string, bool)) (string, bool) {
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && addressByte(text[i]) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			if name, found := find(text[start:i]); found {
				return name, true
			}
			start = -1
		}
	}
	return "", false
}

func addressByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == ':' || c == '-' || c == '_'
}

func findHost(host string) (string, bool) {
	name := strings.Trim(host, ".-")
	for _, known := range metadataNames {
		if name == known || strings.HasSuffix(name, "."+known) {
			return known, true
		}
	}
	// 169-254-169-254.example and 169.254.169.254.example: wildcard DNS services answer with the address in the name.
	labels := strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '-' || r == '_' })
	for i := range labels {
		if addr, ok := bareHex(labels[i]); ok && metadataV4[addr] != "" {
			return metadataV4[addr], true
		}
		for n := 1; n <= 4 && i+n <= len(labels); n++ {
			if addr, ok := parseLooseV4(labels[i : i+n]); ok && metadataV4[addr] != "" {
				return metadataV4[addr], true
			}
		}
	}
	return "", false
}

func bareHex(label string) (uint32, bool) {
	if len(label) != 8 {
		return 0, false
	}
	return digits(label, 16)
}

// parseLooseV4 reads 1 to 4 parts as inet_aton does: each decimal, octal with a leading 0 or hexadecimal with 0x; the
// last part fills what is left. Numbers wrap at 32 bits, as some resolvers let them.
func parseLooseV4(parts []string) (uint32, bool) {
	var addr uint32
	for i, part := range parts {
		n, ok := looseNumber(part)
		if !ok {
			return 0, false
		}
		if i == len(parts)-1 {
			return addr | n&(0xFFFFFFFF>>(8*i)), true
		}
		if n > 255 {
			return 0, false
		}
		addr |= n << (24 - 8*i)
	}
	return 0, false
}

func looseNumber(s string) (uint32, bool) {
	switch {
	case strings.HasPrefix(s, "0x"):
		return digits(s[2:], 16)
	case len(s) > 1 && s[0] == '0':
		if n, ok := digits(s[1:], 8); ok {
			return n, true
		}
	}
	return digits(s, 10)
}

func digits(s string, base uint32) (uint32, bool) {
	if s == "" {
		return 0, false
	}
	var n uint32
	for i := 0; i < len(s); i++ {
		var d uint32
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			d = uint32(c - '0')
		case c >= 'a' && c <= 'f':
			d = uint32(c-'a') + 10
		default:
			return 0, false
		}
		if d >= base {
			return 0, false
		}
		n = n*base + d
	}
	return n, true
}

func findV6(run string) (string, bool) {
	if strings.Count(run, ":") < 2 {
		return "", false
	}
	// A longer run than any address cannot be one; a port or a path's colon may trail it.
	for _, candidate := range []string{run, strings.TrimSuffix(run, ":")} {
		if len(candidate) > 45 {
			continue
		}
		addr, err := netip.ParseAddr(candidate)
		if err != nil || !addr.Is6() {
			continue
		}
		if name, found := metadataV6[addr]; found {
			return name, true
		}
		if name := metadataV4[embeddedV4(addr)]; name != "" {
			return name, true
		}
	}
	return "", false
}

// embeddedV4 is the IPv4 address that an IPv6 address stands for, or 0.
func embeddedV4(addr netip.Addr) uint32 {
	b := addr.As16()
	last := uint32(b[12])<<24 | uint32(b[13])<<16 | uint32(b[14])<<8 | uint32(b[15])
	upper := [12]byte(b[:12])
	switch {
	case addr.Is4In6(), upper == [12]byte{}, upper == [12]byte{8: 0xff, 9: 0xff}, upper == [12]byte{0, 0x64, 0xff, 0x9b}:
		return last
	case b[0] == 0x20 && b[1] == 0x02:
		return uint32(b[2])<<24 | uint32(b[3])<<16 | uint32(b[4])<<8 | uint32(b[5])
	}
	return 0
}

// urlHost reports whether text has host right behind "//" or "@", as a whole host.
func urlHost(text, host string) bool {
	for rest := text; ; {
		i := strings.Index(rest, host)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(host):]
		opens := strings.HasSuffix(before, "//") || strings.HasSuffix(before, "@")
		if opens && (after == "" || strings.IndexByte("/:?# \t\n\"'", after[0]) >= 0 || after == "." || strings.HasPrefix(after, "./") || strings.HasPrefix(after, ".:")) {
			return true
		}
		rest = after
	}
}
