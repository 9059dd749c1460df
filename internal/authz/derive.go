package authz

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// DeriveKey makes a signing key from a secret that every worker of a deployment has, for a purpose. The same secret and
// purpose give the same key; its id begins with the purpose and tells keys of different secrets apart. What it signs is
// worth something only where the key is in VerifierConfig.Bound.
func DeriveKey(secret []byte, purpose string) (SigningKey, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "wakebus signing key v1 "+purpose, ed25519.SeedSize)
	if err != nil {
		return SigningKey{}, fmt.Errorf("derive signing key for %s: %w", purpose, err)
	}
	key := SigningKey{Private: ed25519.NewKeyFromSeed(seed)}
	key.ID = purpose + "-" + hex.EncodeToString(key.Public()[:6])
	return key, nil
}

// Public is the key's public half.
func (k SigningKey) Public() ed25519.PublicKey {
	public, _ := k.Private.Public().(ed25519.PublicKey)
	return public
}
