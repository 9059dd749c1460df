package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

const recordFile = "sprite.json"

// takeDir makes and locks the folder.
func (s *Server) takeDir() error {
	s.dir = s.cfg.Dir
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "sprites-emulator-")
		if err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		s.dir = dir
	}
	abs, err := filepath.Abs(s.dir)
	if err != nil {
		return fmt.Errorf("find folder: %w", err)
	}
	s.dir = abs
	if err := os.MkdirAll(filepath.Join(s.dir, "sprites"), 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", s.dir, ErrInUse), lock.Close())
	}
	s.lock = lock
	return nil
}

func (s *Server) releaseDir() error {
	if s.lock == nil {
		return nil
	}
	_ = s.lock.Close()
	if s.cfg.Dir != "" {
		return nil
	}
	return removeTree(s.dir)
}

// load reads every Sprite; they come back cold.
func (s *Server) load() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sprites"))
	if err != nil {
		return fmt.Errorf("load sprites: %w", err)
	}
	for _, e := range entries {
		folder := filepath.Join(s.dir, "sprites", e.Name())
		raw, err := os.ReadFile(filepath.Join(folder, recordFile))
		if errors.Is(err, fs.ErrNotExist) {
			// A create or delete that was cut off: nobody was told it exists.
			_ = removeTree(folder)
			continue
		}
		var rec record
		if err == nil {
			err = json.Unmarshal(raw, &rec)
		}
		if err != nil {
			return fmt.Errorf("load sprite %s: %w", e.Name(), err)
		}
		s.sprites[rec.Name] = newSprite(s, rec)
	}
	return nil
}

func (sp *sprite) machineFolder() string { return filepath.Join(sp.folder, "machine") }

// save writes the record by rename; it needs the lock. A failure is logged: the
// running emulator is right, only its successor would not be.
func (sp *sprite) save() {
	if err := sp.write(); err != nil {
		sp.srv.log.Error().Err(err).Str("sprite", sp.name).Msg("cannot save sprite")
	}
}

func (sp *sprite) write() error {
	raw, err := json.Marshal(&sp.rec)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	tmp := filepath.Join(sp.folder, recordFile+".new")
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(sp.folder, recordFile)); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// removeTree also removes folders that a guest has closed to its own user. Each
// pass opens up one more level of closed folders in closed folders.
func removeTree(root string) error {
	err := os.RemoveAll(root)
	for range maxClosedLevels {
		if err == nil {
			return nil
		}
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil // what cannot be read now can in the next pass
		})
		err = os.RemoveAll(root)
	}
	return err
}

// maxClosedLevels bounds removeTree; what is closed deeper stays behind.
const maxClosedLevels = 8

// logWriter takes what an init says on its standard error.
type logWriter struct {
	log    zerolog.Logger
	sprite string
}

// Write logs.
func (w logWriter) Write(p []byte) (int, error) {
	w.log.Warn().Str("sprite", w.sprite).Msg(string(p))
	return len(p), nil
}
