package rig

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wakebus/wakebus/internal/authz"
)

// KeySet makes a key that signs the web app's grants and writes its public half into a folder. file is for
// GRANT_KEYS_FILE.
func KeySet(folder string) (key authz.SigningKey, file string, err error) {
	if key, err = authz.GenerateKey("web-1", authz.IssuerWeb, rand.Reader); err != nil {
		return key, "", fmt.Errorf("make a signing key: %w", err)
	}
	set, err := authz.MarshalKeySet(key)
	if err != nil {
		return key, "", fmt.Errorf("write the key set: %w", err)
	}
	file = filepath.Join(folder, "keys.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		return key, "", fmt.Errorf("write the key set: %w", err)
	}
	return key, file, nil
}
