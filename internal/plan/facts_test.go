package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

func TestFactsAreReadWithTheirDefaults(t *testing.T) {
	t.Parallel()
	got, err := plan.ParseFacts([]byte(`{"intent":"run","authorised":true,"link":"live","idle":"20m"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Facts{Intent: plan.IntentRun, Kind: plan.KindConversation, Authorised: true, Authentic: true, Link: plan.LinkLive,
		Idle: 20 * time.Minute, HardExpiry: plan.DefaultHardExpiry, Presence: plan.PresenceUnknown}
	if got != want {
		t.Fatalf("%+v", got)
	}
}

func TestFactsReportEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := plan.ParseFacts([]byte(`{"intent":"go","authorised":true,"link":"x","kind":"y","idle":"5","hard_expiry":"-1h"}`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"intent", "link", "kind", "idle", "hard_expiry"} {
		if !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

func TestFactsRefuseWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `[]`, `{"intent":"run","authorized":true}`, `{"intent":"run"} {}`,
		`{"intent":"run","note":"` + strings.Repeat("x", plan.MaxFacts) + `"}`} {
		if _, err := plan.ParseFacts([]byte(text)); err == nil {
			t.Errorf("accepted %.40q", text)
		}
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add([]byte(`{"intent":"run","authorised":true,"link":"live","idle":"20m"}`))
	f.Add([]byte(`{"intent":"end","authentic":false}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		facts, err := plan.ParseFacts(data)
		if err == nil && facts.Validate() != nil {
			t.Fatalf("read %+v, which is not valid", facts)
		}
		plan.Decide(facts)
	})
}
