package bus

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// MinSecret is the shortest deployment secret that counts as one, in bytes.
const MinSecret = 32

var (
	// ErrNoSecret: the deployment secret is absent or shorter than MinSecret.
	ErrNoSecret = errors.New("the session secret is missing or too short")
	// ErrWrongSecret: a sealed body was made with a secret that this deployment does not have.
	ErrWrongSecret = errors.New("sealed with another secret")
	// ErrSealBroken: a sealed body was changed, or belongs to another letter.
	ErrSealBroken = errors.New("the seal is broken")
)

// Sealed is a request's original body, encrypted so that only this deployment can open it.
type Sealed struct {
	KeyID string `json:"key_id"`
	Nonce []byte `json:"nonce"`
	Data  []byte `json:"data"`
}

// Sealer seals and opens the original bodies of dead letters: AES-256-GCM under a key derived by HKDF-SHA-256 from
// the deployment's session secret. The letter's id is authenticated with the body, so that a body cannot be moved
// to another job. It is safe for concurrent use when its source of randomness is.
type Sealer struct {
	keys   []sealKey // the first one seals
	random io.Reader
}

type sealKey struct {
	id   string
	aead cipher.AEAD
}

// SealerConfig holds what a Sealer needs beside the secret.
type SealerConfig struct {
	// Previous is the secret before the last rotation; it only opens. Defaults to none.
	Previous []byte
	// Random gives nonces. Defaults to crypto/rand.
	Random io.Reader
}

// NewSealer derives the keys. Errors are ErrNoSecret.
func NewSealer(secret []byte, cfg SealerConfig) (*Sealer, error) {
	s := &Sealer{random: cfg.Random}
	if s.random == nil {
		s.random = rand.Reader
	}
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("make sealer: %w", ErrNoSecret)
	}
	secrets := [][]byte{secret}
	if len(cfg.Previous) >= MinSecret {
		secrets = append(secrets, cfg.Previous)
	}
	for _, sec := range secrets {
		key, err := deriveSealKey(sec)
		if err != nil {
			return nil, fmt.Errorf("make sealer: %w", err)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

func deriveSealKey(secret []byte) (sealKey, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "wakebus dead letter v1 key", 32)
	if err != nil {
		return sealKey{}, err
	}
	id, err := hkdf.Key(sha256.New, secret, nil, "wakebus dead letter v1 key id", 6)
	if err != nil {
		return sealKey{}, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealKey{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return sealKey{}, err
	}
	return sealKey{id: hex.EncodeToString(id), aead: aead}, nil
}

// Seal encrypts body for the letter id. It fails only when the source of randomness does.
func (s *Sealer) Seal(id LetterID, body []byte) (*Sealed, error) {
	key := s.keys[0]
	nonce := make([]byte, key.aead.NonceSize())
	if _, err := io.ReadFull(s.random, nonce); err != nil {
		return nil, fmt.Errorf("seal body of %s: %w", id, err)
	}
	return &Sealed{KeyID: key.id, Nonce: nonce, Data: key.aead.Seal(nil, nonce, body, []byte(id.String()))}, nil
}

// Open decrypts what Seal made for the same letter. Errors are ErrWrongSecret and ErrSealBroken.
func (s *Sealer) Open(id LetterID, sealed *Sealed) ([]byte, error) {
	if sealed == nil {
		return nil, fmt.Errorf("open body of %s: %w", id, ErrSealBroken)
	}
	for _, key := range s.keys {
		if key.id != sealed.KeyID {
			continue
		}
		if len(sealed.Nonce) != key.aead.NonceSize() {
			return nil, fmt.Errorf("open body of %s: %w", id, ErrSealBroken)
		}
		body, err := key.aead.Open(nil, sealed.Nonce, sealed.Data, []byte(id.String()))
		if err != nil {
			return nil, fmt.Errorf("open body of %s: %w", id, ErrSealBroken)
		}
		return body, nil
	}
	return nil, fmt.Errorf("open body of %s: %w", id, ErrWrongSecret)
}
