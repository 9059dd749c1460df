package deploy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// keeper is the backup user at a broker. It speaks the protocol of `nats stream backup` and `restore` (NATS documentation,
// JetStream API reference).
type keeper struct {
	t  *testing.T
	nc *nats.Conn
}

func newKeeper(t *testing.T, b *broker) *keeper {
	t.Helper()
	return &keeper{t, b.dial("backup")}
}

func (k *keeper) ask(subject, body string) json.RawMessage {
	k.t.Helper()
	m, err := k.nc.Request(subject, []byte(body), patience)
	if err != nil {
		k.t.Fatalf("%s: %v", subject, err)
	}
	var answer struct {
		Error *struct{ Description string } `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error != nil {
		k.t.Fatalf("%s answered %s", subject, m.Data)
	}
	return m.Data
}

// copied is a stream in a backup.
type copied struct {
	config, state json.RawMessage
	chunks        [][]byte
}

func (k *keeper) backup(stream string) copied {
	k.t.Helper()
	inbox := k.nc.NewInbox()
	sub, err := k.nc.SubscribeSync(inbox)
	if err != nil {
		k.t.Fatal(err)
	}
	var c copied
	answer := k.ask("$JS.API.STREAM.SNAPSHOT."+stream, fmt.Sprintf(`{"deliver_subject":%q,"no_consumers":true}`, inbox))
	var head struct{ Config, State json.RawMessage }
	if err := json.Unmarshal(answer, &head); err != nil {
		k.t.Fatal(err)
	}
	c.config, c.state = head.Config, head.State
	for {
		m, err := sub.NextMsg(patience)
		if err != nil {
			k.t.Fatalf("copy of %s: %v", stream, err)
		}
		if len(m.Data) == 0 {
			return c
		}
		c.chunks = append(c.chunks, m.Data)
		if m.Reply == "" {
			continue // only every so many chunks the server waits for a word
		}
		if err := m.Respond(nil); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *keeper) restore(stream string, c copied) {
	k.t.Helper()
	answer := k.ask("$JS.API.STREAM.RESTORE."+stream, fmt.Sprintf(`{"config":%s,"state":%s}`, c.config, c.state))
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	if err := json.Unmarshal(answer, &to); err != nil {
		k.t.Fatal(err)
	}
	for _, chunk := range c.chunks {
		if m, err := k.nc.Request(to.Subject, chunk, patience); err != nil || strings.Contains(string(m.Data), "error") {
			k.t.Fatalf("restore %s: %v", stream, err)
		}
	}
	k.ask(to.Subject, "")
}

func TestABackupBringsLinksAndDeadLettersBackIntoAnEmptyBroker(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	old := startBroker(t, "nats.conf")
	old.setUp()
	s := startSystemOn(t, old, map[string]string{"SANDBOX_SESSION_SECRET": secret})
	web := s.caller("web", "dev")
	_, r := web.exec("c", "true")
	s.outcome(r, plan.OutcomeExited)
	limit := emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Body: `{"error":"invalid"}`}
	if err := s.inst.Emulator().AddFaults(limit); err != nil {
		t.Fatal(err)
	}
	failed, r := web.exec("other", "echo at last")
	s.outcome(r, plan.OutcomeFailed)
	id := bus.LetterID{Tenant: "dev", Job: failed}
	waitFor(t, func() bool { _, err := old.connect("ops").Letter(within(t), id); return err == nil })
	streams := []string{"KV_SANDBOX_LINKS", "SANDBOX_DLQ", "SANDBOX_AUDIT"}
	copies := map[string]copied{}
	for _, stream := range streams {
		copies[stream] = newKeeper(t, old).backup(stream)
	}

	fresh := startBroker(t, "nats.conf")
	for _, stream := range streams {
		newKeeper(t, fresh).restore(stream, copies[stream])
	}
	fresh.setUp() // what was not restored is made anew, and what was is as this release wants it
	again := startSystemOn(t, fresh, map[string]string{"SANDBOX_SESSION_SECRET": secret})
	ops := again.caller("ops", "dev")
	entry, err := ops.bus.MarkReplaying(within(t), id, bus.ReplayOptions{By: "olga"})
	if err != nil {
		t.Fatal(err)
	}
	events := ops.read(failed, bus.ReadRun(1))
	grant := `{"iss":"ops","sub":"olga","job":"` + failed + `"}`
	if err := ops.bus.ParkReplay(within(t), entry, bus.Replay{At: time.Now(), Deadline: time.Now().Add(time.Minute), Grant: grant}); err != nil {
		t.Fatal(err)
	}
	if _, out := again.outcome(events, plan.OutcomeExited); out != "at last\n" {
		t.Errorf("the replayed dead letter printed %q", out)
	}
	if keys, err := ops.bus.Links().List(within(t), ""); err != nil || len(keys) != 2 {
		t.Errorf("the links are %v, %v", keys, err)
	}
}
