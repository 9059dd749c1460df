package authz

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// KeyFileConfig configures a KeyFile.
type KeyFileConfig struct {
	// CheckEvery is the least time between two looks at the file; an unknown key id also looks, as seldom.
	// Defaults to 1 second.
	CheckEvery time.Duration
	// MaxStale is how long the last good keys are used when the file cannot be read any more; then every grant is
	// misconfigured. Defaults to 15 minutes.
	MaxStale time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// OnError is told of each failed reading; it must not block. Defaults to nothing.
	OnError func(error)
}

// KeyFile is a JWK set in a file that is read again when it changes, so that keys rotate without a restart. It may be
// used concurrently; Key reads the file at times.
type KeyFile struct {
	path string
	cfg  KeyFileConfig

	mu      sync.Mutex // protects what follows
	keys    KeySet
	info    fs.FileInfo // of the reading that gave keys
	checked time.Time
	good    time.Time // when the file was last seen in order
	err     error     // of the last look
}

var _ Keys = (*KeyFile)(nil)

// OpenKeyFile reads the file once; it must be in order now.
func OpenKeyFile(path string, cfg KeyFileConfig) (*KeyFile, error) {
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = time.Second
	}
	if cfg.MaxStale == 0 {
		cfg.MaxStale = 15 * time.Minute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	f := &KeyFile{path: path, cfg: cfg}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("open grant keys: %w", err)
	}
	f.checked = cfg.Now()
	f.good = f.checked
	return f, nil
}

// Key returns the key by the file's present content: ErrUnknownKey, or *Misconfigured once the file has been broken
// for longer than MaxStale.
func (f *KeyFile) Key(kid string) (TrustedKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.cfg.Now()
	if now.Sub(f.checked) >= f.cfg.CheckEvery {
		f.checked = now
		if f.err = f.read(); f.err != nil {
			f.cfg.OnError(f.err)
		} else {
			f.good = now
		}
	}
	if f.err != nil && now.Sub(f.good) >= f.cfg.MaxStale {
		return TrustedKey{}, &Misconfigured{What: "grant keys file", Err: f.err}
	}
	return f.keys.Key(kid)
}

// read reads the file if it changed since the last good reading.
func (f *KeyFile) read() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if f.info != nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() {
		return nil
	}
	if !info.Mode().IsRegular() {
		return errors.New("grant keys file is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxKeySet+1))
	if err != nil {
		return err
	}
	keys, err := ParseKeySet(data)
	if err != nil {
		return err
	}
	f.keys, f.info = keys, info
	return nil
}
