package lease_test

import (
	"net"
	"strings"
	"testing"
)

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func contains(err error, part string) bool { return strings.Contains(err.Error(), part) }
