package deploy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// verb is how an operation reaches the broker.
type verb string

const (
	publish   verb = "publish"
	subscribe verb = "subscribe"
)

// operation is one thing that somebody with a stock client might try.
type operation struct {
	verb    verb
	subject string
	body    string
}

func pub(subject string) operation { return operation{publish, subject, "{}"} }

func api(call, body string) operation { return operation{publish, "$JS.API." + call, body} }

func sub(subject string) operation { return operation{subscribe, subject, ""} }

// operations are named as one would tell of them. "acme" is the tenant that has a credential, "other" one that has not.
var operations = map[string]operation{
	"claim a run":                          pub("sandbox.event.acme.j.0.state"),
	"forge a result":                       pub("sandbox.event.other.j.0.state"),
	"forge output":                         pub("sandbox.event.acme.j.0.out"),
	"publish on a reply subject":           pub("sandbox.reply.acme.j.0.state"),
	"publish output on a reply subject":    pub("sandbox.reply.acme.j.0.out"),
	"write a dead letter":                  pub("sandbox.dlq.acme.j"),
	"schedule a run":                       pub("sandbox.retry.at.acme.j.0"),
	"make a run due":                       pub("sandbox.retry.due.exec.acme"),
	"make an end due":                      pub("sandbox.retry.due.end.other"),
	"switch execution":                     pub("sandbox.control.execution"),
	"publish another switch":               pub("sandbox.control.other"),
	"audit a run":                          pub("sandbox.audit.acme.run.j.0"),
	"audit an operator":                    pub("sandbox.audit.acme.operate.j"),
	"audit a terminal":                     pub("sandbox.audit.acme.open.o"),
	"write a conversation's link":          pub("$KV.SANDBOX_LINKS.conversation.acme.n.c"),
	"write a terminal's link":              pub("$KV.SANDBOX_LINKS.terminal.acme.n.p"),
	"open a terminal":                      pub("terminal.open.acme"),
	"open a terminal without a tenant":     pub("terminal.open"),
	"queue a command":                      pub("sandbox.exec.acme"),
	"queue a command without a tenant":     pub("sandbox.exec"),
	"queue a command as another tenant":    pub("sandbox.exec.other"),
	"call a command":                       pub("sandbox.call.exec.acme"),
	"call a command as another tenant":     pub("sandbox.call.exec.other"),
	"end a session":                        pub("sandbox.end.acme"),
	"end another tenant's session":         pub("sandbox.end.other"),
	"cancel a job":                         pub("sandbox.cancel.acme.job.j"),
	"cancel another tenant's job":          pub("sandbox.cancel.other.job.j"),
	"cancel another tenant's conversation": pub("sandbox.cancel.other.conversation.c"),
	"ask for history":                      pub("sandbox.history.acme"),
	"ask for another tenant's history":     pub("sandbox.history.other"),
	"ask for jobs":                         pub("sandbox.jobs.acme"),
	"ask for another tenant's jobs":        pub("sandbox.jobs.other"),
	"read a file":                          pub("sandbox.file.read.acme"),
	"read another tenant's file":           pub("sandbox.file.read.other"),
	"write a file":                         pub("sandbox.file.write.acme"),
	"write another tenant's file":          pub("sandbox.file.write.other"),
	"ask who may run code":                 pub("authz.can_run_code"),
	"write into the web app's inbox":       pub("_INBOX_web.x.y"),
	"write into a worker's inbox":          pub("_INBOX_worker.x.y"),
	"write into an operator's inbox":       pub("_INBOX_ops.x.y"),
	"write into another tenant's inbox":    pub("_INBOX_other.x.y"),
	"write into an inbox of nobody's":      pub("_INBOX.x.y"),
	"ping the workers":                     pub("$SRV.PING"),
	"ask the server's system":              pub("$SYS.REQ.SERVER.PING"),
	"read every inbox":                     sub("_INBOX.>"),
	"read the web app's inbox":             sub("_INBOX_web.>"),
	"read a worker's inbox":                sub("_INBOX_worker.>"),
	"read the gateway's inbox":             sub("_INBOX_gateway.>"),
	"read an operator's inbox":             sub("_INBOX_ops.>"),
	"read a tenant's inbox":                sub("_INBOX_acme.>"),
	"read another tenant's inbox":          sub("_INBOX_other.>"),
	"read replies":                         sub("sandbox.reply.acme.>"),
	"read another tenant's replies":        sub("sandbox.reply.other.>"),
	"read one job of another tenant":       sub("sandbox.reply.other.j.>"),
	"read everybody's replies":             sub("sandbox.reply.>"),
	"read everything":                      sub(">"),
	"read events before they are stored":   sub("sandbox.event.>"),
	"listen at the command queue":          sub("sandbox.exec.*"),
	"listen at the terminal queue":         sub("terminal.open.*"),
	"listen to schedules":                  sub("sandbox.retry.>"),
	"listen to cancels":                    sub("sandbox.cancel.>"),
	"listen to dead letters":               sub("sandbox.dlq.>"),
	"listen to the audit":                  sub("sandbox.audit.>"),
	"listen to links":                      sub("$KV.SANDBOX_LINKS.>"),
	"listen to the switch":                 sub("sandbox.control.execution"),
	"listen to the broker's API":           sub("$JS.API.>"),
	"listen to acks":                       sub("$JS.ACK.>"),
	"answer in place of the web app":       sub("authz.can_run_code"),
	"serve history":                        sub("sandbox.history.*"),
	"serve file writes":                    sub("sandbox.file.write.*"),
	"serve calls":                          sub("sandbox.call.exec.*"),
	"pose as a worker":                     sub("$SRV.>"),
	"make a stream":                        api("STREAM.CREATE.EVIL", `{"name":"EVIL","subjects":["evil.>"]}`),
	"loosen the command queue":             api("STREAM.UPDATE.SANDBOX", "{}"),
	"delete the command queue":             api("STREAM.DELETE.SANDBOX", ""),
	"delete the journal":                   api("STREAM.DELETE.SANDBOX_JOBS", ""),
	"delete the audit":                     api("STREAM.DELETE.SANDBOX_AUDIT", ""),
	"delete the links":                     api("STREAM.DELETE.KV_SANDBOX_LINKS", ""),
	"empty the command queue":              api("STREAM.PURGE.SANDBOX", ""),
	"empty the schedule":                   api("STREAM.PURGE.SANDBOX_RETRY", ""),
	"empty the audit":                      api("STREAM.PURGE.SANDBOX_AUDIT", ""),
	"empty the journal":                    api("STREAM.PURGE.SANDBOX_JOBS", ""),
	"take a message out of the audit":      api("STREAM.MSG.DELETE.SANDBOX_AUDIT", `{"seq":1}`),
	"take a message out of the journal":    api("STREAM.MSG.DELETE.SANDBOX_JOBS", `{"seq":1}`),
	// With nowhere to deliver to: where it is let through, the server would wait for a reader beyond the test's end.
	"copy the journal away":                   api("STREAM.SNAPSHOT.SANDBOX_JOBS", `{"deliver_subject":""}`),
	"put the journal back":                    api("STREAM.RESTORE.SANDBOX_JOBS", "{}"),
	"put a stream back":                       api("STREAM.RESTORE.SANDBOX_AUDIT", "{}"),
	"list streams":                            api("STREAM.LIST", ""),
	"look at a stream":                        api("STREAM.INFO.SANDBOX_JOBS", ""),
	"read a queued request":                   api("STREAM.MSG.GET.SANDBOX", `{"seq":1}`),
	"read a sealed body":                      api("STREAM.MSG.GET.SANDBOX_DLQ", `{"seq":1}`),
	"read the audit":                          api("STREAM.MSG.GET.SANDBOX_AUDIT", `{"seq":1}`),
	"read the journal":                        api("STREAM.MSG.GET.SANDBOX_JOBS", `{"seq":1}`),
	"read stored output":                      api("DIRECT.GET.SANDBOX_OUTPUT", `{"seq":1}`),
	"read a link":                             api("STREAM.MSG.GET.KV_SANDBOX_LINKS", `{"seq":1}`),
	"make a consumer of the journal":          api("CONSUMER.CREATE.SANDBOX_JOBS.evil", "{}"),
	"make a consumer of the output":           api("CONSUMER.CREATE.SANDBOX_OUTPUT.evil", "{}"),
	"make a consumer of the audit":            api("CONSUMER.CREATE.SANDBOX_AUDIT.evil", "{}"),
	"make a consumer of the dead letters":     api("CONSUMER.CREATE.SANDBOX_DLQ.evil", "{}"),
	"make a consumer of the command queue":    api("CONSUMER.CREATE.SANDBOX.evil", "{}"),
	"make a consumer the old way":             api("CONSUMER.DURABLE.CREATE.SANDBOX.evil", "{}"),
	"delete the workers' consumer":            api("CONSUMER.DELETE.SANDBOX.exec", ""),
	"pause the workers' consumer":             api("CONSUMER.PAUSE.SANDBOX.exec", `{"pause_until":"2100-01-01T00:00:00Z"}`),
	"take a command from the queue":           api("CONSUMER.MSG.NEXT.SANDBOX.exec", "1"),
	"take a due retry":                        api("CONSUMER.MSG.NEXT.SANDBOX_RETRY.exec-due", "1"),
	"ack a command away":                      pub("$JS.ACK.SANDBOX.exec.1.1.1.1.0"),
	"ack a command away, in the new spelling": pub("$JS.ACK.hub.acc.SANDBOX.exec.1.1.1.1.0"),
	"make a stream's leader step down":        api("STREAM.LEADER.STEPDOWN.SANDBOX", ""),
	"purge the account":                       api("ACCOUNT.PURGE.WAKEBUS", ""),
	"take a server out of the cluster":        api("SERVER.REMOVE", `{"peer":"x"}`),
	"ask how much the account stores":         api("INFO", ""),
}

// streamAdmin is what nobody but the set-up may do, and most of it not even that.
var streamAdmin = []string{
	"delete the command queue", "delete the journal", "delete the audit", "delete the links", "empty the command queue",
	"empty the audit", "empty the journal", "take a message out of the audit", "take a message out of the journal",
	"copy the journal away", "put a stream back", "delete the workers' consumer", "pause the workers' consumer",
	"make a stream's leader step down",
}

// forbidden are 30 operations for each role. A tenant's own credential comes first: the least trusted.
var forbidden = map[string][]string{
	"web-acme": {
		"read another tenant's replies", "read everybody's replies", "read everything", "read every inbox", "read the web app's inbox",
		"read another tenant's inbox", "queue a command as another tenant", "queue a command without a tenant",
		"call a command as another tenant", "end another tenant's session", "cancel another tenant's job",
		"cancel another tenant's conversation", "ask for another tenant's history", "ask for another tenant's jobs",
		"read another tenant's file", "write another tenant's file", "forge a result", "publish on a reply subject",
		"make a consumer of the journal", "make a consumer of the output", "make a consumer of the command queue",
		"take a command from the queue", "ack a command away", "listen at the command queue", "write a dead letter",
		"schedule a run", "switch execution", "make a stream", "delete the command queue", "answer in place of the web app",
	},
	"web": {
		"claim a run", "forge output", "publish on a reply subject", "publish output on a reply subject", "write a dead letter",
		"schedule a run", "make a run due", "switch execution", "audit a run", "write a conversation's link", "open a terminal",
		"ask who may run code", "write into a worker's inbox", "read a worker's inbox", "read an operator's inbox", "read a tenant's inbox",
		"read events before they are stored", "listen at the command queue", "listen to dead letters", "listen to the audit",
		"serve history", "pose as a worker", "make a consumer of the journal", "make a consumer of the command queue",
		"take a command from the queue", "ack a command away", "read the audit", "make a stream", "delete the journal", "ask how much the account stores",
	},
	"gateway": {
		"queue a command", "call a command", "end a session", "cancel a job", "ask for jobs", "read a file", "write a file",
		"claim a run", "forge output", "publish on a reply subject", "write a dead letter", "schedule a run", "make a run due",
		"switch execution", "audit a run", "audit an operator", "write a conversation's link", "read the web app's inbox",
		"read a worker's inbox", "listen at the terminal queue", "answer in place of the web app", "serve calls",
		"make a consumer of the journal", "read the journal", "read a sealed body", "take a command from the queue",
		"ack a command away", "make a stream", "delete the links", "empty the schedule",
	},
	"worker": append([]string{
		"publish on a reply subject", "make a run due", "make an end due", "switch execution", "end a session", "open a terminal",
		"write into another tenant's inbox", "write into an inbox of nobody's", "read the web app's inbox", "read a tenant's inbox",
		"read everything", "answer in place of the web app", "read the audit", "make a consumer of the audit", "make a stream",
		"loosen the command queue",
	}, streamAdmin...),
	"ops": append([]string{
		"claim a run", "forge a result", "forge output", "publish on a reply subject", "make a run due", "publish another switch",
		"audit a run", "audit a terminal", "open a terminal", "read a worker's inbox", "serve history", "make a stream",
		"take a command from the queue", "ack a command away, in the new spelling", "make a consumer of the audit", "empty the schedule",
	}, streamAdmin...),
	"backup": {
		"queue a command", "claim a run", "forge output", "publish on a reply subject", "write a dead letter", "schedule a run",
		"make a run due", "switch execution", "audit an operator", "write a conversation's link", "read replies", "read everything",
		"read every inbox", "listen at the command queue", "listen to dead letters", "pose as a worker", "read a queued request",
		"read a sealed body", "read the audit", "read the journal", "take a command from the queue", "ack a command away",
		"make a consumer of the audit", "make a stream", "loosen the command queue", "delete the audit", "empty the audit",
		"delete the links", "copy the journal away", "put the journal back",
	},
	"setup": {
		"queue a command", "claim a run", "forge output", "publish on a reply subject", "write a dead letter", "schedule a run",
		"make a run due", "switch execution", "audit an operator", "write a conversation's link", "read replies", "read everything",
		"read every inbox", "listen at the command queue", "listen to dead letters", "pose as a worker", "read a queued request",
		"read a sealed body", "read the audit", "read the journal", "read stored output", "read a link", "take a command from the queue",
		"ack a command away", "make a consumer of the journal", "make a consumer of the audit", "delete the command queue",
		"delete the audit", "empty the audit", "delete the workers' consumer",
	},
}

// refused tries an operation with the stock client on a connection of its own. The broker's refusal arrives before the
// answer to the flush, so that no time has to pass.
func refused(t *testing.T, url string, op operation) bool {
	t.Helper()
	nc, err := nats.Connect(url, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if op.verb == subscribe {
		_, err = nc.SubscribeSync(op.subject)
	} else {
		err = nc.Publish(op.subject, []byte(op.body))
	}
	if err = errors.Join(err, nc.FlushTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	err = nc.LastError()
	if err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("%s %s: %v", op.verb, op.subject, err)
	}
	return err != nil && strings.Contains(err.Error(), `"`+op.subject+`"`)
}

// tryAll gives the names of those of a role's forbidden operations that the broker let through.
func tryAll(t *testing.T, b *broker, user string) []string {
	t.Helper()
	var through []string
	for _, name := range forbidden[user] {
		op, known := operations[name]
		if !known {
			t.Fatalf("operation %q is not described", name)
		}
		if !refused(t, b.url(user), op) {
			through = append(through, name)
		}
	}
	return through
}

func TestEachRoleHasThirtyForbiddenOperations(t *testing.T) {
	t.Parallel()
	for _, r := range roles {
		names := slices.Clone(forbidden[r.user])
		slices.Sort(names)
		if n := len(slices.Compact(names)); n != 30 {
			t.Errorf("%s has %d", r.user, n)
		}
	}
}

// Cases 84 and 85: what an id or a reply subject might smuggle in stops at the broker too.
func TestCases84And85NoRoleMayDoWhatIsNotItsWork(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	b.setUp()
	before := contents(t, b)
	for _, r := range roles {
		if through := tryAll(t, b, r.user); len(through) > 0 {
			t.Errorf("%s was let through: %s", r.user, strings.Join(through, "; "))
		}
	}
	if after := contents(t, b); after != before {
		t.Errorf("the streams hold\n%s\nand held\n%s", after, before)
	}
}

func TestWithoutItsDenialsARoleMayDoAllThirty(t *testing.T) {
	t.Parallel()
	for _, r := range roles {
		t.Run(r.user, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, "nats.conf", edit{"\naccounts: {", "\n" + r.permissions + ` = { publish: ">", subscribe: ">" }` + "\naccounts: {"})
			b.setUp()
			if through := tryAll(t, b, r.user); len(through) != 30 {
				t.Errorf("only %d of 30 went through: the test does not test the permissions", len(through))
			}
			for _, other := range roles {
				if other != r && len(tryAll(t, b, other.user)) > 0 {
					t.Errorf("%s has gained rights too", other.user)
				}
			}
		})
	}
}

// contents says how many messages each stream holds and how many consumers it has.
func contents(t *testing.T, b *broker) string {
	t.Helper()
	js := b.raw("ops")
	var out []string
	list := js.ListStreams(within(t))
	for s := range list.Info() {
		out = append(out, fmt.Sprintf("%s %d %d", s.Config.Name, s.State.LastSeq, s.State.Consumers))
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestAMisspelledUserOrPasswordIsNotLetIn(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	for _, u := range []string{strings.Replace(b.url("web"), "pw-of-web", "wrong", 1), strings.Replace(b.url("web"), "web:", "wbe:", 1), b.servers[0].URL()} {
		if nc, err := nats.Connect(u); !errors.Is(err, nats.ErrAuthorization) {
			nc.Close()
			t.Errorf("connected with %v", err)
		}
	}
}
