package session

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/wakebus/wakebus/internal/plan"
)

// Key names a session: what it belongs to.
type Key struct {
	Kind   plan.SessionKind
	Tenant string
	// Drive is optional.
	Drive string
	// ID is the conversation or the page.
	ID string
}

// Validate reports every part that may not enter a key (ErrBadKey).
func (k Key) Validate() error {
	var bad []string
	if !k.Kind.Valid() {
		bad = append(bad, "kind")
	}
	if !plan.ValidToken(k.Tenant) {
		bad = append(bad, "tenant")
	}
	if k.Drive != "" && !plan.ValidPrincipal(k.Drive) {
		bad = append(bad, "drive")
	}
	if !plan.ValidToken(k.ID) {
		bad = append(bad, "conversation or page")
	}
	if len(bad) > 0 {
		return fmt.Errorf("%w: %s", ErrBadKey, strings.Join(bad, ", "))
	}
	return nil
}

// String is the key under which the link is stored: four tokens of [A-Za-z0-9_-] joined by dots. A drive may hold any
// printable character and is encoded, so that no two keys meet and none reaches another subject (case 84). For a
// valid key ParseKey gives it back.
func (k Key) String() string {
	return Prefix(k.Kind, k.Tenant) + driveToken(k.Drive) + "." + k.ID
}

// Prefix is what the stored keys of a tenant's sessions of one kind begin with.
func Prefix(kind plan.SessionKind, tenant string) string { return string(kind) + "." + tenant + "." }

func driveToken(drive string) string {
	if drive == "" {
		return "n"
	}
	return "d" + base64.RawURLEncoding.EncodeToString([]byte(drive))
}

// ParseKey reads a stored key. It accepts exactly what String makes of a valid key (else ErrBadKey).
func ParseKey(stored string) (Key, error) {
	parts := strings.Split(stored, ".")
	if len(parts) != 4 || parts[2] == "" {
		return Key{}, fmt.Errorf("%w: it has not four parts", ErrBadKey)
	}
	drive, err := base64.RawURLEncoding.DecodeString(parts[2][1:])
	if err != nil {
		return Key{}, fmt.Errorf("%w: drive", ErrBadKey)
	}
	k := Key{Kind: plan.SessionKind(parts[0]), Tenant: parts[1], Drive: string(drive), ID: parts[3]}
	if err := k.Validate(); err != nil {
		return Key{}, err
	}
	if k.String() != stored {
		return Key{}, fmt.Errorf("%w: it is not in its usual spelling", ErrBadKey)
	}
	return k, nil
}
