package emulator_test

import (
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func instantly(c *emulator.Config) { c.Instant = true }

func TestInstantAnswersWithoutProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t, instantly)
	b.create("one")
	for _, c := range []struct {
		argv []string
		out  string
		code int
	}{
		{[]string{"true"}, "", 0},
		{[]string{"echo", "a", "b"}, "a b\n", 0},
		{[]string{"sh", "-c", "echo x; exit 42"}, "x\n", 42},
		{[]string{"bash", "-c", "false"}, "", 1},
		{[]string{"gcc"}, "", 127},
	} {
		r := b.open("one", command(c.argv...)).wait()
		if r.out.String() != c.out || r.exit != c.code {
			t.Errorf("%v: %q %d", c.argv, r.out.String(), r.exit)
		}
	}
	r := b.open("one", command("head", "-c", "10000000", "/dev/zero")).wait()
	if r.out.Len() != 10000000 {
		t.Errorf("%d bytes", r.out.Len())
	}
}

func TestInstantSleepEndsByKill(t *testing.T) {
	t.Parallel()
	b := setup(t, instantly)
	b.create("one")
	r := b.open("one", command("sleep", "1000"))
	b.call("POST", "/v1/sprites/one/exec/"+r.session()+"/kill?signal=KILL", nil)
	if r.wait(); r.exit != 137 {
		t.Fatal(r.exit)
	}
}

func TestInstantSleepEndsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t, instantly)
	b.create("one")
	r := b.open("one", command("sleep", "0.01"))
	if r.wait(); r.exit != 0 {
		t.Fatal(r.exit)
	}
}
