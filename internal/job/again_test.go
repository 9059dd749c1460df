package job_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// A due copy of a run takes the parked one out of its schedule when it is stored. It may reach the worker that has just
// parked the run again, and is then all that carries it: it is handed back, never acked, while the run is on its way here.
func TestADueCopyOfARunThatIsOnItsWayIsHandedBack(t *testing.T) {
	t.Parallel()
	h := build(t)
	a, release := h.latch(t, "c", nil)
	key := bus.RunKey{Tenant: tenant, Job: a.job}
	_, record, err := h.bus.LastState(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: a.job, ConversationID: "c", Shell: "true"})
	if err != nil {
		t.Fatal(err)
	}
	header := bus.Header{}
	header.Set(bus.HeaderQueued, strconv.FormatUint(record.Queued, 10))
	if err := h.bus.Park(t.Context(), key, bus.KindExec, time.Now(), header, body); err != nil {
		t.Fatal(err)
	}
	due, err := h.streams(t).Consumer(t.Context(), bus.StreamRetry, "exec-due")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy comes again", func() bool {
		info, err := due.Info(t.Context())
		return err == nil && info.Delivered.Consumer >= 2
	})
	release()
	exited(t, a.result(), 0)
	eventually(t, "it is acked behind the result", func() bool {
		info, err := due.Info(t.Context())
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0
	})
}
