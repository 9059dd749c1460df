package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

func TestASecondInstanceInAFolderIsToldWhoHasTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := filepath.Join(r.dir, "taken")
	first, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	got := r.run("dev", "--dir", dir)
	if got.code != 1 || !strings.Contains(got.err, "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(got.err, "--dir OTHER") {
		t.Errorf("%s", got)
	}
	if strings.Contains(got.err, "lock") {
		t.Errorf("it speaks of locks: %s", got.err)
	}
}
