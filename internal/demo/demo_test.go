package demo_test

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/demo"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	goleak.VerifyTestMain(m)
}

func TestEveryStepOfTheDemoHolds(t *testing.T) {
	var out bytes.Buffer
	if err := demo.Run(t.Context(), demo.Config{Out: &out}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != "demo: 10 of 10 steps held" {
		t.Fatalf("the last line is %q", last)
	}
}

func TestAStepThatDoesNotHoldFailsTheDemo(t *testing.T) {
	var out bytes.Buffer
	refused := emulator.Fault{Route: "policy.network.set", Do: emulator.FaultStatus, Status: 400}
	err := demo.Run(t.Context(), demo.Config{Out: &out, Emulator: func(c *emulator.Config) { c.Faults = append(c.Faults, refused) }})
	if err == nil || !strings.Contains(out.String(), "FAIL") {
		t.Fatalf("err %v\n%s", err, out.String())
	}
}
