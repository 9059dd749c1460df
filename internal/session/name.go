package session

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
)

// MinSecret is the least length of a naming secret, in bytes; a shorter one counts as absent.
const MinSecret = 32

// MaxName is the longest Sprite name, in bytes.
const MaxName = 48

// nameBytes of the digest go into a name: 160 bits, 32 characters of base32.
const nameBytes = 20

// MaxPreviousSecrets bounds how many names one session may be looked up by.
const MaxPreviousSecrets = 4

var prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9]{0,13}$`)

// NamerConfig configures a Namer.
type NamerConfig struct {
	// Secret keys the names; at least MinSecret bytes. Required.
	Secret []byte
	// Previous secrets, newest first, at most MaxPreviousSecrets: what was named with one is still found.
	// Defaults to none.
	Previous [][]byte
	// Prefix begins every name: a lower-case letter, then up to 13 lower-case letters or digits. Defaults to "wb".
	Prefix string
}

// Namer derives Sprite names from sessions. Nobody without the secret can guess a name or find whose it is. A Namer
// never changes and may be used concurrently.
type Namer struct {
	secrets [][]byte
	prefix  string
}

// NewNamer reports every problem at once; errors.Is finds ErrWeakSecret. Secrets are copied.
func NewNamer(cfg NamerConfig) (*Namer, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "wb"
	}
	var errs []error
	if !prefixPattern.MatchString(cfg.Prefix) {
		errs = append(errs, fmt.Errorf("name prefix %q is not up to 14 lower-case letters and digits", cfg.Prefix))
	}
	if len(cfg.Secret) < MinSecret {
		errs = append(errs, ErrWeakSecret)
	}
	if len(cfg.Previous) > MaxPreviousSecrets {
		errs = append(errs, fmt.Errorf("there are more than %d previous session secrets", MaxPreviousSecrets))
	}
	n := &Namer{prefix: cfg.Prefix, secrets: [][]byte{bytes.Clone(cfg.Secret)}}
	for i, secret := range cfg.Previous {
		if len(secret) < MinSecret {
			errs = append(errs, fmt.Errorf("previous secret %d: %w", i+1, ErrWeakSecret))
		}
		n.secrets = append(n.secrets, bytes.Clone(secret))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n, nil
}

// Name is the name that a new Sprite of this session gets: prefix, "-", 32 characters of lower-case base32; at most
// MaxName bytes and safe as a DNS label. It fails with ErrBadKey.
func (n *Namer) Name(k Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	return n.name(n.secrets[0], k), nil
}

// Names is Name, then the names by which the session would have been called under each previous secret: what to look
// up when no link says the name. It fails with ErrBadKey.
func (n *Namer) Names(k Key) ([]string, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(n.secrets))
	for _, secret := range n.secrets {
		names = append(names, n.name(secret, k))
	}
	return names, nil
}

func (n *Namer) name(secret []byte, k Key) string {
	mac := hmac.New(sha256.New, secret)
	for _, part := range []string{"wakebus sprite name 1", string(k.Kind), k.Tenant, k.Drive, k.ID} {
		// The length before each part keeps ("a","bc") and ("ab","c") apart, whatever the parts contain (case 19).
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		mac.Write([]byte(part))
	}
	sum := mac.Sum(nil)[:nameBytes]
	return n.prefix + "-" + nameEncoding.EncodeToString(sum)
}

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String hides the secrets from whoever prints a Namer.
func (n *Namer) String() string { return "namer(" + n.prefix + ")" }

// GoString hides the secrets too.
func (n *Namer) GoString() string { return n.String() }
