package plan_test

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/plan"
)

func TestAFailureIsHintedAt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code int
		tail string
		want plan.Hint
	}{
		{0, "No space left on device", plan.HintNone},
		{1, "assertion failed", plan.HintNone},
		{1, "write /workspace/x: No space left on device\n", plan.HintDiskFull},
		{137, "tar: disk quota exceeded", plan.HintDiskFull},
		{137, "", plan.HintMayBeMemory},
		{134, "FATAL ERROR: JavaScript heap out of memory", plan.HintOutOfMemory},
		{1, "fork: Cannot allocate memory", plan.HintOutOfMemory},
		{1, "no space left on device" + strings.Repeat(".", 4096), plan.HintNone},
	} {
		if got := plan.OutcomeHint(tt.code, []byte(tt.tail)); got != tt.want {
			t.Errorf("%d %.40q: %q, want %q", tt.code, tt.tail, got, tt.want)
		}
	}
}
