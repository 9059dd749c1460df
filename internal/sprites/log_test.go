package sprites_test

import (
	"bytes"
	"sync"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/sprites"
)

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) into(cfg *sprites.Config) {
	logger := zerolog.New(l)
	cfg.Logger = &logger
}
