package bus_test

import (
	"net/url"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func portOf(t *testing.T, s *bus.Server) int {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
