package emulator

import "errors"

// Errors of this package.
var (
	// ErrConfig marks a setting that cannot be used.
	ErrConfig = errors.New("invalid setting")
	// ErrFault marks a fault rule that cannot be used.
	ErrFault = errors.New("invalid fault")
	// ErrNoSprite says that no Sprite has this name.
	ErrNoSprite = errors.New("sprite not found")
	// ErrClosed says that the server has been closed.
	ErrClosed = errors.New("emulator is closed")
	// ErrInUse says that another emulator uses the same folder.
	ErrInUse = errors.New("folder is in use by another emulator")

	errRunningLimit = errors.New("concurrent sprite limit exceeded")
	errNoSession    = errors.New("session not found")
)
