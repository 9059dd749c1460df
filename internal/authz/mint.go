package authz

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Mint signs claims as they are: the caller sets iat, exp and the rest.
func Mint(claims Claims, key SigningKey) (string, error) {
	if key.ID == "" || len(key.Private) == 0 {
		return "", errors.New("mint grant: no key")
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	token.Header["kid"] = key.ID
	signed, err := token.SignedString(key.Private)
	if err != nil {
		return "", fmt.Errorf("mint grant: %w", err)
	}
	if len(signed) > MaxToken {
		return "", fmt.Errorf("mint grant: it would be longer than %d bytes", MaxToken)
	}
	return signed, nil
}
