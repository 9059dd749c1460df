package main

import (
	"context"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/sprites"
)

// livePatience bounds the live check: a create, a first boot and a command.
const livePatience = 3 * time.Minute

// live makes one sandbox, runs a command in it and deletes it again.
func (u *checkup) live(ctx context.Context, s config.Client) {
	client, err := u.c.sprites(s)
	if err != nil {
		u.say(verdictFail, "live: "+err.Error(), "set SPRITES_API_TOKEN")
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, livePatience)
	defer cancel()
	name, began := "wb-check-"+newID()[:16], u.c.now()
	defer func() {
		// What the check made goes, also after Ctrl-C; Delete is bounded by itself.
		if err := client.Delete(context.WithoutCancel(ctx), name); err != nil {
			u.say(verdictFail, "live: sandbox "+name+" was not deleted: "+err.Error(), "delete it by hand")
		}
	}()
	made, err := client.Provision(ctx, sprites.ProvisionRequest{Name: name, Tenant: "check",
		Labels: []string{job.DeploymentLabel(s.DeploymentID)}, Egress: s.EgressAllow, Create: true})
	if err != nil {
		u.say(verdictFail, "live: a sandbox cannot be made: "+err.Error(), "read the error's class in docs/operations.md")
		return
	}
	u.say(verdictOK, fmt.Sprintf("live: sandbox made, locked down and writable in %s", u.c.now().Sub(began).Round(time.Millisecond)), "")
	code, err := runTrue(ctx, client, name, made.HasBash)
	if err != nil || code != 0 {
		u.say(verdictFail, fmt.Sprintf("live: a command ended with %d: %v", code, err), "see the sandbox's console")
		return
	}
	u.say(verdictOK, fmt.Sprintf("live: a command ran after %s", u.c.now().Sub(began).Round(time.Millisecond)), "")
	u.observe(ctx, client, name)
}

// observe says what the service does where no document tells. None of it fails the check: the client copes with each.
func (u *checkup) observe(ctx context.Context, client *sprites.Client, name string) {
	o, err := client.Observe(ctx, name)
	if err != nil {
		u.say(verdictFail, "live: the service cannot be observed: "+err.Error(), "try again")
		return
	}
	told := func(good bool, yes, no, todo string) {
		if good {
			u.say(verdictOK, "live: "+yes, "")
			return
		}
		u.say(verdictNote, "live: "+no, todo)
	}
	told(o.SessionIsPID, "a session's id is its pid inside", "a session's id is not its pid inside",
		"a command whose first answer was lost is followed by its guard file alone, without its output")
	told(o.OffsetHonoured, "an attach honours output_offset", "an attach does not honour output_offset",
		"a take-over proves by the last 4 KiB where the output goes on, or says a gap")
	if o.OffsetAdvertised != o.OffsetHonoured {
		u.say(verdictNote, fmt.Sprintf("live: output_offset is advertised: %t, honoured: %t", o.OffsetAdvertised, o.OffsetHonoured), "the client goes by what is advertised, and compares")
	}
	told(o.ReplayBytes >= o.Written, fmt.Sprintf("an attach replays all of %d bytes", o.Written),
		fmt.Sprintf("an attach replays %d of %d bytes", o.ReplayBytes, o.Written), "a take-over that comes later than that much output says a gap")
	told(o.User == o.WorkspaceOwner, "/workspace belongs to "+o.User+", who runs the commands",
		fmt.Sprintf("/workspace belongs to %s, commands run as %s", o.WorkspaceOwner, o.User), "it was proven writable all the same")
}

func runTrue(ctx context.Context, client *sprites.Client, name string, bash bool) (int, error) {
	p, err := client.Start(ctx, sprites.Command{Sprite: name, Tenant: "check", Guard: "check." + newID() + ".0", Job: "check",
		Argv: []string{"true"}, HasBash: bash, Limit: 30 * time.Second})
	if err != nil {
		return -1, err
	}
	defer p.Close()
	for {
		if _, err = p.Next(ctx); err != nil {
			break
		}
	}
	exit, ok := p.Exit()
	if !ok {
		return -1, err
	}
	return exit.Code, nil
}
