package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// DevDir is the folder of a dev instance, and EnvName the file in it that says where the instance listens.
const (
	DevDir  = ".wakebus"
	EnvName = "env"
)

// DevFile is what a running dev instance wrote about itself.
type DevFile struct {
	// Path is the file.
	Path string
	// Dir is the dev instance's folder.
	Dir string
	// Values are the variables in it.
	Values map[string]string
}

// Gone is the error for a connection that failed although the file is there.
func (f *DevFile) Gone(cause error) error { return &DevGoneError{Dir: f.Dir, Cause: cause} }

// FindDevFile looks for .wakebus/env in dir and in each parent folder, and reads the first one. It returns
// ErrNoDevFile when there is none, and a *DevFileError for one that others could have written or read: it says whom
// commands and secrets are sent to.
func FindDevFile(dir string) (*DevFile, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find dev instance: %w", err)
	}
	for {
		path := filepath.Join(dir, DevDir, EnvName)
		_, err := os.Lstat(path)
		switch {
		case err == nil:
			return ReadDevFile(path)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return nil, &DevFileError{Path: path, Why: osCause(err)}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, ErrNoDevFile
		}
		dir = parent
	}
}

// ReadDevFile reads one dev instance's file and checks that it is a plain file of this user with mode 0600 or less.
func ReadDevFile(path string) (*DevFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &DevFileError{Path: path, Why: osCause(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &DevFileError{Path: path, Why: osCause(err)}
	}
	if why := untrusted(info); why != "" {
		return nil, &DevFileError{Path: path, Why: why}
	}
	if info.Size() > MaxEnvFile {
		return nil, &DevFileError{Path: path, Why: fmt.Sprintf("is larger than %d bytes", MaxEnvFile)}
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil && len(data) > 0 {
		return nil, &DevFileError{Path: path, Why: osCause(err)}
	}
	values, err := ParseEnv(data)
	if err != nil {
		return nil, &DevFileError{Path: path, Why: err.Error()}
	}
	return &DevFile{Path: path, Dir: filepath.Dir(path), Values: values}, nil
}

func untrusted(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return "is no plain file"
	case !ok || int(stat.Uid) != os.Geteuid():
		return "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		return "can be read or written by others; it must have mode 0600"
	}
	return ""
}

// WriteDevFile writes path by rename, with mode 0600, so that a reader finds all of it or none.
func WriteDevFile(path string, values map[string]string) error {
	data, err := FormatEnv(values)
	if err != nil {
		return fmt.Errorf("write dev file %s: %w", path, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+EnvName+"-*")
	if err != nil {
		return fmt.Errorf("write dev file %s: %w", path, err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Chmod(0o600), temp.Close()); err != nil {
		return fmt.Errorf("write dev file %s: %w", path, err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("write dev file %s: %w", path, err)
	}
	return nil
}

// Client is the settings of a client command with where they came from.
type Client struct {
	Config
	// File is the dev instance's file that the NATS address came from, nil when it came from elsewhere.
	File *DevFile
}

// LoadClient reads a client command's settings: flags (by variable) win over the environment, and that over the
// dev instance's file in dir or its nearest parent. The file is left alone when NATS_URL was given otherwise: half
// of one deployment and half of another would be worse than neither. The error is as Load's, or a *DevFileError.
func LoadClient(flags map[string]string, lookup func(string) (string, bool), environ []string, dir string) (Client, []Warning, error) {
	given := First(In(flags), lookup)
	_, direct := given("NATS_URL")
	_, byFile := given("NATS_URL_FILE")
	var file *DevFile
	values := map[string]string{}
	if !direct && !byFile {
		found, err := FindDevFile(dir)
		if err != nil && !errors.Is(err, ErrNoDevFile) {
			return Client{}, nil, err
		}
		if found != nil {
			file, values = found, found.Values
		}
	}
	c, warnings, err := Load(RoleClient, First(given, In(values)), environ)
	return Client{Config: c, File: file}, warnings, err
}
