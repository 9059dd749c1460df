package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
	"github.com/wakebus/wakebus/tests/rig"
)

// told is what a caller was told: by a result, or by a file endpoint's error.
type told struct {
	outcome    plan.Outcome // empty for an endpoint
	reason     plan.Reason
	message    string
	retryable  bool
	retryAfter time.Duration
	letter     bool
}

func by(r bus.ResultBody) told {
	return told{outcome: r.Outcome, reason: r.Reason, message: r.Message, retryable: r.Retryable,
		retryAfter: time.Duration(r.RetryAfterMs) * time.Millisecond, letter: r.DeadLetter != ""}
}

func endpointSaid(t testing.TB, err error) told {
	t.Helper()
	var e *bus.EndpointError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an endpoint's error", err)
	}
	return told{reason: e.Reason, message: e.Error(), retryable: e.Retryable, retryAfter: e.RetryAfter}
}

// reasonHouses are what the rows below ask. Most share one house; what upsets everybody in it has its own.
type reasonHouses struct {
	main   *house // dev mode; a run whose job begins with "broken" fails unexpectedly
	alone  *house // no web app answers the callout
	narrow *house // the provider lets nobody create anything
	muddy  *house // /workspace cannot be written
	off    *house // running code was switched off by an operator
	mint   func(authz.Claims) string
}

func newReasonHouses(t *testing.T) *reasonHouses {
	r := &reasonHouses{}
	r.main = build(t, workers(-1), eachWorker(func(_ int, c *job.Config) {
		c.Step = func(_ context.Context, s job.Step, k bus.RunKey) error {
			if s == job.StepAfterLease && strings.HasPrefix(k.Job, "broken") {
				return errors.New("the unexpected")
			}
			return nil
		}
	}))
	key, file, err := rig.KeySet(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.mint = func(c authz.Claims) string {
		token, err := authz.Mint(c, key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	r.alone = build(t, settings("AUTHZ_MODE", "callout", "GRANT_KEYS_FILE", file))
	r.narrow = build(t, settings("WAKEBUS_CREATE_PATIENCE", "1s"), emulated(func(c *emulator.Config) {
		c.Faults = []emulator.Fault{{Route: "sprite.create", Do: emulator.FaultStatus, Status: 429,
			Headers: map[string]string{"Retry-After": "2"}, Body: `{"error":"sprite_creation_rate_limited"}`}}
	}))
	r.muddy = build(t, emulated(func(c *emulator.Config) { c.Workspace = guest.WorkspaceForeign }))
	r.off = build(t)
	if err := r.off.bus.SetExecution(t.Context(), false, "ops", "a test"); err != nil {
		t.Fatal(err)
	}
	return r
}

func verdict(r plan.Reason) func(*testing.T, *reasonHouses) told {
	return func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		return by(h.exec(t, bus.ExecRequest{ConversationID: h.id("c"), Shell: "true"}, grant{"sub": "eve", "verdict": r}).result())
	}
}

func command(req bus.ExecRequest) func(*testing.T, *reasonHouses) told {
	return func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		req.ConversationID = h.id("c")
		return by(h.exec(t, req, nil).result())
	}
}

// status makes every call of a route for one new conversation's Sprite answer so.
func status(route string, code int) func(*testing.T, *reasonHouses) told {
	return func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		c := h.id("c")
		h.fault(t, emulator.Fault{Route: route, Sprite: h.name(t, c), Do: emulator.FaultStatus, Status: code})
		return by(h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "true"}, grant{"sub": c}).result())
	}
}

var reasonRows = map[plan.Reason]func(*testing.T, *reasonHouses) told{
	plan.ReasonAppAdminRequired: verdict(plan.ReasonAppAdminRequired),
	plan.ReasonNoDriveAccess:    verdict(plan.ReasonNoDriveAccess),
	plan.ReasonInsufficientRole: verdict(plan.ReasonInsufficientRole),
	plan.ReasonNoAgentAccess:    verdict(plan.ReasonNoAgentAccess),
	plan.ReasonPageNotFound:     verdict(plan.ReasonPageNotFound),
	plan.ReasonNoEditAccess:     verdict(plan.ReasonNoEditAccess),
	plan.ReasonDriveNotFound:    verdict(plan.ReasonDriveNotFound),

	plan.ReasonEmptyCommand:          command(bus.ExecRequest{Shell: " \t "}),
	plan.ReasonCommandTooLarge:       command(bus.ExecRequest{Shell: ": " + strings.Repeat("x", 16<<10)}),
	plan.ReasonBlockedMetadataAccess: command(bus.ExecRequest{Argv: []string{"curl", "http://169.254.169.254/latest"}}),
	plan.ReasonPathEscape:            command(bus.ExecRequest{Shell: "true", Cwd: "/workspace/../etc"}),

	plan.ReasonProvisionFailed:   status("sprite.create", 400),
	plan.ReasonMisconfigured:     status("sprite.get", 401),
	plan.ReasonProvisionConflict: status("sprite.create", 409),

	plan.ReasonKillSwitchOff: func(t *testing.T, houses *reasonHouses) told {
		r := by(houses.off.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, nil).result())
		if n := houses.off.providerCalls(); n != 0 {
			t.Errorf("%d calls were made although running code is off", n)
		}
		return r
	},
	plan.ReasonInvalidRequest: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		id := h.id("odd")
		body := []byte(`{"v":1,"job_id":"` + id + `","conversation_id":"c","shell":"true","colour":"red"}`)
		return by(h.publish(t, bus.KindExec, tenant, id, body, bus.Header{}).result())
	},
	plan.ReasonAuthorizationExpired: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		return by(h.exec(t, bus.ExecRequest{ConversationID: h.id("c"), Shell: "true"}, grant{"sub": "late", "exp": 1_000_000_000}).result())
	},
	plan.ReasonContentTooLarge: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		nc, err := nats.Connect(h.inst.Env()["NATS_URL"])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		// A client that does not check: one byte more than the endpoint takes, and the broker still carries it.
		msg := nats.NewMsg(bus.SubjectFileWrite + "." + tenant)
		msg.Header.Set(bus.HeaderParams, `{"v":1,"conversation_id":"c","path":"big"}`)
		msg.Data = make([]byte, h.bus.MaxFileBytes()+1)
		reply, err := nc.RequestMsg(msg, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		reason := plan.Reason(reply.Header.Get("Nats-Service-Error-Code"))
		return told{reason: reason, message: reply.Header.Get("Nats-Service-Error"), retryable: reply.Header.Get(bus.HeaderRetryable) == "true"}
	},
	plan.ReasonConcurrencyLimit: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		c, who := h.id("c"), grant{"sub": "busy"}
		first := h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "sleep 60"}, who)
		first.until(bus.EventStarted)
		r := by(h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "true"}, who).result())
		if !strings.Contains(r.message, first.job) {
			t.Errorf("%q does not say which job is in the way (%s)", r.message, first.job)
		}
		if r.retryAfter <= 0 {
			t.Error("no hint when to come back")
		}
		return r
	},
	plan.ReasonRateLimited: func(t *testing.T, houses *reasonHouses) told {
		h := build(t) // the provider's word holds for everybody's files
		c := h.id("c")
		exited(t, h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "echo x >f"}, nil).result(), 0)
		h.fault(t, emulator.Fault{Route: "fs.*", Do: emulator.FaultStatus, Status: 429, Headers: map[string]string{"Retry-After": "7"}})
		_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: c, Path: "f"})
		r := endpointSaid(t, err)
		if r.retryAfter != 7*time.Second {
			t.Errorf("the hint is %s, the provider said 7 s", r.retryAfter)
		}
		return r
	},
	plan.ReasonSessionEnded: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		c := h.id("c")
		outcome(t, h.end(t, c), plan.OutcomeEnded, "")
		return by(h.sh(t, c, "true"))
	},
	plan.ReasonProvisionRateLimited: func(t *testing.T, houses *reasonHouses) told {
		r := by(houses.narrow.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, nil).result())
		if r.retryAfter <= 0 {
			t.Error("the provider's hint is lost")
		}
		return r
	},
	plan.ReasonWorkspaceUnwritable: func(t *testing.T, houses *reasonHouses) told {
		return by(houses.muddy.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, nil).result())
	},
	plan.ReasonExecutionFailed: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		c := h.id("c")
		who := grant{"sub": c}
		req := bus.ExecRequest{ConversationID: c, Shell: "cd /home/sprite && mv .wakebus .gone && : >.wakebus"}
		h.exec(t, req, who).result()
		return by(h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "true"}, who).result())
	},
	plan.ReasonCrashLoop: func(t *testing.T, houses *reasonHouses) told {
		return by((&asked{t: t, job: "doomed", reader: follow(t, houses.main, "doomed")}).result())
	},
	plan.ReasonNotFound: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		c := h.id("c")
		exited(t, h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "true"}, grant{"sub": c}).result(), 0)
		_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: c, Path: "nothing"})
		return endpointSaid(t, err)
	},
	plan.ReasonWorkerUnavailable: func(t *testing.T, houses *reasonHouses) told {
		h := houses.alone
		id, soon := h.id("job"), time.Now().Add(8*time.Second) // longer than one wait, however late it begins
		token := houses.mint(authz.Claims{Issuer: authz.IssuerWeb, Audience: jwt.ClaimStrings{authz.AudienceGrant}, Subject: "ann", Tenant: tenant,
			Conversation: "c", Job: id, Verdict: authz.VerdictAllow, IssuedAt: jwt.NewNumericDate(time.Now()), Expires: jwt.NewNumericDate(time.Now().Add(time.Minute)), ID: id})
		header := bus.Header{}
		header.Set(bus.HeaderGrant, token)
		a := h.publish(t, bus.KindExec, tenant, id, bus.ExecRequest{V: 1, JobID: id, ConversationID: "c", Shell: "true", Deadline: &soon}, header)
		r := by(a.result())
		if len(a.waits()) == 0 {
			t.Error("it was given up without waiting for the web app")
		}
		if n := h.providerCalls(); n != 0 {
			t.Errorf("%d calls were made although nobody had authorised it", n)
		}
		return r
	},
	plan.ReasonError: func(t *testing.T, houses *reasonHouses) told {
		h := houses.main
		return by(h.exec(t, bus.ExecRequest{JobID: h.id("broken"), ConversationID: h.id("c"), Shell: "true"}, grant{"sub": "broken"}).result())
	},
}

func follow(t testing.TB, h *house, id string) *bus.Reader {
	t.Helper()
	reader, err := h.bus.Subscribe(t.Context(), tenant, id, bus.ReadFollow())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return reader
}

// doom makes a request whose four owners have died, before any worker is there to take it.
func (h *house) doom(t testing.TB, id string) {
	t.Helper()
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: id, Shell: "true"})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := h.bus.Publish(t.Context(), bus.KindExec, tenant, bus.Header{}, body)
	if err != nil {
		t.Fatal(err)
	}
	actor := bus.Actor{Tenant: tenant, User: "dev", Tier: plan.TierFree}
	_, err = h.bus.Claim(t.Context(), bus.RunKey{Tenant: tenant, Job: id}, "ghost.e4", bus.Claim{
		Record: bus.Record{Queued: seq, QueuedAt: time.Now(), Kind: bus.KindExec, Crashes: 4, Actor: &actor},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Case 61: each cause has a code of its own, with what to do about it; a code that nothing brings back, or a cause
// without its code, fails.
func TestCase61EveryReasonComesBackOverTheBus(t *testing.T) {
	t.Parallel()
	houses := newReasonHouses(t)
	houses.main.doom(t, "doomed")
	if _, err := houses.main.inst.AddWorker(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, info := range plan.Reasons() {
		if reasonRows[info.Reason] == nil {
			t.Errorf("%s: no row brings it back", info.Reason)
		}
	}
	for reason, ask := range reasonRows {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			if !reason.Valid() {
				t.Fatal("a row for a code that does not exist")
			}
			got := ask(t, houses)
			if got.reason != reason {
				t.Fatalf("got %+v", got)
			}
			if !strings.HasPrefix(got.message, reason.Sentence()) {
				t.Errorf("%q does not begin with the code's sentence", got.message)
			}
			if got.retryable != reason.Retryable() {
				t.Errorf("retryable is %v", got.retryable)
			}
			if got.letter && got.outcome == plan.OutcomeDenied {
				t.Error("a denial was dead-lettered")
			}
			if reason.Info().Authorization && got.outcome != plan.OutcomeDenied {
				t.Errorf("a denial of permission came as %s", got.outcome)
			}
		})
	}
}

// providerCalls counts what was asked of the provider, but for the list that the fleet is measured by.
func (h *house) providerCalls() int {
	e := h.inst.Emulator()
	return e.Count("", "") - e.Count("sprite.list", "")
}
