package authz

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The bounds of a key set.
const (
	MaxKeySet = 64 << 10 // bytes
	MaxKeys   = 64
	maxKeyID  = 128
)

// jwk is the part of RFC 7517 and RFC 8037 that is used.
type jwk struct {
	KeyType string `json:"kty"`
	Curve   string `json:"crv"`
	KeyID   string `json:"kid"`
	Use     string `json:"use,omitempty"`
	Alg     string `json:"alg,omitempty"`
	X       string `json:"x"`
	D       string `json:"d,omitempty"`
	// Issuer is ours: whose grants the key signs. Absent is the web app's.
	Issuer string `json:"iss,omitempty"`
}

// TrustedKey is a public key and whose grants it may sign.
type TrustedKey struct {
	Public ed25519.PublicKey
	// Issuer is the one iss that the key may sign: IssuerWeb or IssuerOps.
	Issuer string
}

// Keys finds the public key of a key id: ErrUnknownKey, or *Misconfigured when keys cannot be had at all. It may be
// called concurrently.
type Keys interface {
	Key(kid string) (TrustedKey, error)
}

// KeySet is a fixed set of public keys by id.
type KeySet map[string]TrustedKey

var _ Keys = KeySet(nil)

// Key returns the key, or ErrUnknownKey.
func (s KeySet) Key(kid string) (TrustedKey, error) {
	if key, ok := s[kid]; ok {
		return key, nil
	}
	return TrustedKey{}, ErrUnknownKey
}

// ParseKeySet reads a JWK set of Ed25519 public keys. A key signs the web app's grants; one with the member "iss" signs
// that issuer's alone, so that whoever holds the web app's key cannot pass for an operator. Keys of other kinds are
// skipped, so that a set may serve others too; an issuer that is not known, a private key, a key without an id, an id used twice, or a set without any usable key is an error.
func ParseKeySet(data []byte) (KeySet, error) {
	if len(data) > MaxKeySet {
		return nil, fmt.Errorf("key set is larger than %d bytes", MaxKeySet)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		// The text of a JSON error may quote the file.
		return nil, errors.New("key set is not a JWK set")
	}
	if len(set.Keys) > MaxKeys {
		return nil, fmt.Errorf("key set has more than %d keys", MaxKeys)
	}
	keys := KeySet{}
	var errs []error
	for i, k := range set.Keys {
		if k.KeyType != "OKP" || k.Curve != "Ed25519" || (k.Use != "" && k.Use != "sig") || (k.Alg != "" && k.Alg != "EdDSA") {
			continue
		}
		public, err := k.public()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("key %d: %w", i+1, err))
		case k.D != "":
			errs = append(errs, fmt.Errorf("key %d is private; only its public half belongs here", i+1))
		case keys[k.KeyID].Public != nil:
			errs = append(errs, fmt.Errorf("key %d: its id occurs twice", i+1))
		case !knownIssuer(k.Issuer):
			errs = append(errs, fmt.Errorf("key %d: its iss is neither %s nor %s", i+1, IssuerWeb, IssuerOps))
		default:
			keys[k.KeyID] = TrustedKey{Public: public, Issuer: issuerOr(k.Issuer)}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("key set has no Ed25519 key")
	}
	return keys, nil
}

func knownIssuer(iss string) bool { return iss == "" || iss == IssuerWeb || iss == IssuerOps }

// issuerOr fills the issuer of a key that names none.
func issuerOr(iss string) string {
	if iss == "" {
		return IssuerWeb
	}
	return iss
}

func (k jwk) public() (ed25519.PublicKey, error) {
	if k.KeyID == "" || len(k.KeyID) > maxKeyID {
		return nil, fmt.Errorf("its id is empty or longer than %d bytes", maxKeyID)
	}
	x, err := base64.RawURLEncoding.Strict().DecodeString(k.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, errors.New("its x is no Ed25519 key")
	}
	return ed25519.PublicKey(x), nil
}

// SigningKey is a private key and its id.
type SigningKey struct {
	ID      string
	Private ed25519.PrivateKey
	// Issuer is whose grants it signs. Empty is the web app's.
	Issuer string
}

// Signs reports whether grants of an issuer are verified with this key.
func (k SigningKey) Signs(issuer string) bool { return issuerOr(k.Issuer) == issuer }

// GenerateKey makes a signing key for an issuer's grants from random, which is crypto/rand.Reader outside tests.
func GenerateKey(kid, issuer string, random io.Reader) (SigningKey, error) {
	if !knownIssuer(issuer) {
		return SigningKey{}, fmt.Errorf("issuer is neither %s nor %s", IssuerWeb, IssuerOps)
	}
	if kid == "" || len(kid) > maxKeyID {
		return SigningKey{}, fmt.Errorf("key id is empty or longer than %d bytes", maxKeyID)
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return SigningKey{}, fmt.Errorf("make signing key: %w", err)
	}
	return SigningKey{ID: kid, Private: ed25519.NewKeyFromSeed(seed), Issuer: issuer}, nil
}

// Marshal writes the key as a private JWK. Keep it secret.
func (k SigningKey) Marshal() ([]byte, error) {
	j := k.jwk()
	j.D = base64.RawURLEncoding.EncodeToString(k.Private.Seed())
	return marshalKey(j)
}

// MarshalKeySet writes the public halves as a JWK set, the content of GRANT_KEYS_FILE.
func MarshalKeySet(keys ...SigningKey) ([]byte, error) {
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.jwk())
	}
	return marshalKey(set)
}

// AddToKeySet returns a JWK set with the public half of key added, everything else in it as it was. The result must be in
// order by ParseKeySet's rules.
func AddToKeySet(data []byte, key SigningKey) ([]byte, error) {
	if _, err := ParseKeySet(data); err != nil {
		return nil, err
	}
	var set map[string]json.RawMessage
	var keys []json.RawMessage
	if err := errors.Join(json.Unmarshal(data, &set), json.Unmarshal(set["keys"], &keys)); err != nil {
		return nil, errors.New("key set is not a JWK set") // unreachable after ParseKeySet, which took it
	}
	one, err := json.Marshal(key.jwk())
	if err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	if set["keys"], err = json.Marshal(append(keys, one)); err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	out, err := marshalKey(set)
	if err == nil {
		_, err = ParseKeySet(out)
	}
	return out, err
}

// ParseSigningKey reads what Marshal wrote. Its errors never quote the key.
func ParseSigningKey(data []byte) (SigningKey, error) {
	var j jwk
	if len(data) > MaxKeySet || json.Unmarshal(data, &j) != nil || j.KeyType != "OKP" || j.Curve != "Ed25519" {
		return SigningKey{}, errors.New("signing key is not an Ed25519 JWK")
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(j.D)
	if err != nil || len(seed) != ed25519.SeedSize {
		return SigningKey{}, errors.New("signing key has no private part")
	}
	if _, err := j.public(); err != nil {
		return SigningKey{}, fmt.Errorf("signing key: %w", err)
	}
	if !knownIssuer(j.Issuer) {
		return SigningKey{}, fmt.Errorf("signing key: its iss is neither %s nor %s", IssuerWeb, IssuerOps)
	}
	key := SigningKey{ID: j.KeyID, Private: ed25519.NewKeyFromSeed(seed), Issuer: j.Issuer}
	if key.jwk().X != j.X {
		return SigningKey{}, errors.New("signing key's halves do not belong together")
	}
	return key, nil
}

// String hides the key.
func (k SigningKey) String() string { return "signing key " + k.ID }

// GoString hides the key too.
func (k SigningKey) GoString() string { return k.String() }

func (k SigningKey) jwk() jwk {
	public, _ := k.Private.Public().(ed25519.PublicKey)
	return jwk{KeyType: "OKP", Curve: "Ed25519", KeyID: k.ID, Use: "sig", Alg: "EdDSA",
		X: base64.RawURLEncoding.EncodeToString(public), Issuer: k.Issuer}
}

func marshalKey(v any) ([]byte, error) {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return append(out, '\n'), nil
}
