package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Switch is on only for the four letters true. Whatever else was said is kept, so that a typing error can be told
// apart from off.
type Switch string

// On reports whether the switch says exactly true.
func (s Switch) On() bool { return s == "true" }

// AuthMode is who decides about permission.
type AuthMode string

// The closed set of authorisation modes.
const (
	AuthGrant   AuthMode = "grant"
	AuthCallout AuthMode = "callout"
	AuthDev     AuthMode = "dev"
)

// Level is the least level that is logged.
type Level string

// The closed set of levels.
const (
	LevelTrace Level = "trace"
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
	LevelOff   Level = "off"
)

// Levels lists the closed set. The caller may keep the slice.
func Levels() []Level {
	return []Level{LevelTrace, LevelDebug, LevelInfo, LevelWarn, LevelError, LevelOff}
}

// Addr is a host and port to listen on.
type Addr string

// List is a comma separated list.
type List []string

// String joins the list with commas.
func (l List) String() string { return strings.Join(l, ",") }

// Size is a number of bytes.
type Size int64

// Bytes is the size as a plain number.
func (s Size) Bytes() int64 { return int64(s) }

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if u.bytes > 1 && s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads a whole number with B, KiB, MiB or GiB; without a unit it means bytes.
func ParseSize(text string) (Size, error) {
	number, unit := text, int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	if !digits(number) {
		return 0, errors.New("must be a whole number with B, KiB, MiB or GiB, such as 8MiB")
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > (1<<62)/unit {
		return 0, errors.New("is too large for a size")
	}
	return Size(n * unit), nil
}

// ParseDuration reads a duration with its units, such as 90s or 1h30m. A number without a unit is refused: what was
// meant cannot be known.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || !strings.HasSuffix(text, "s") && !strings.HasSuffix(text, "m") && !strings.HasSuffix(text, "h") {
		return 0, errors.New("must be a duration with a unit, such as 90s or 5m")
	}
	return d, nil
}

// TierLimits gives a limit to each tier.
type TierLimits map[plan.Tier]int

// String writes the limits in the order of the tiers.
func (l TierLimits) String() string {
	var parts []string
	for _, tier := range plan.Tiers() {
		if n, ok := l[tier]; ok {
			parts = append(parts, fmt.Sprintf("%s=%d", tier, n))
		}
	}
	return strings.Join(parts, ",")
}

// Max is the largest limit.
func (l TierLimits) Max() int { return slices.Max(append(slices.Collect(maps.Values(l)), 0)) }

// DefaultTierLimits returns the limits that hold for tiers which a setting does not name.
func DefaultTierLimits() TierLimits {
	return TierLimits{plan.TierFree: 1, plan.TierPro: 2, plan.TierFounder: 3, plan.TierBusiness: 5}
}

// ParseTierLimits reads tier=number pairs separated by commas.
func ParseTierLimits(text string) (TierLimits, error) {
	limits := DefaultTierLimits()
	seen := map[plan.Tier]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(pair, "=")
		tier := plan.Tier(name)
		n, err := parseInt(number)
		if !ok || !tier.Valid() || err != nil || n < 0 || n > 1_000_000 {
			return nil, errors.New("must be tier=number pairs separated by commas, with the tiers free, pro, founder and business")
		}
		if seen[tier] {
			return nil, fmt.Errorf("names the tier %s twice", tier)
		}
		seen[tier] = true
		limits[tier] = n
	}
	return limits, nil
}

func parseInt(text string) (int, error) {
	if !digits(text) {
		return 0, errors.New("must be a whole number")
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, errors.New("is too large")
	}
	return int(n), nil
}

func digits(text string) bool {
	if text == "" {
		return false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func parseAddr(text string) (Addr, error) {
	host, port, err := net.SplitHostPort(text)
	n, errPort := parseInt(port)
	if err != nil || errPort != nil || n > 65535 || strings.ContainsAny(host, " \t") {
		return "", errors.New("must be host:port, such as 127.0.0.1:9090")
	}
	return Addr(text), nil
}

func parseList(text string) (List, error) {
	var list List
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return nil, errors.New("has an empty item between commas")
		}
		list = append(list, item)
	}
	return list, nil
}

func parseMode(text string) (AuthMode, error) {
	switch m := AuthMode(text); m {
	case AuthGrant, AuthCallout, AuthDev:
		return m, nil
	}
	return "", errors.New("must be grant, callout or dev")
}

func parseLevel(text string) (Level, error) {
	if l := Level(text); slices.Contains(Levels(), l) {
		return l, nil
	}
	return "", errors.New("must be trace, debug, info, warn, error or off")
}
