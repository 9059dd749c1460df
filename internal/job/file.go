package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

// files serves the file endpoints by the same rules as commands: authorisation, a lease of its own kind, a wake.
type files struct{ w *Worker }

var _ bus.FileHandler = files{}

// ReadFile returns one bounded piece of a file.
func (f files) ReadFile(ctx context.Context, c bus.FileCall, p bus.FileReadParams) (*bus.FileContent, error) {
	var out *bus.FileContent
	most := min(f.w.bus.MaxFileBytes(), sprites.FileMax)
	if p.MaxBytes > 0 {
		most = min(most, p.MaxBytes)
	}
	q := fileAsk{action: authz.ActionFileRead, conversation: p.ConversationID, drive: p.DriveID, path: p.Path}
	err := f.serve(ctx, c, q, func(ctx context.Context, sandbox, name string) error {
		data, info, err := f.w.sprites.ReadFile(ctx, sandbox, name, p.Offset, most)
		out = &bus.FileContent{Data: data, Size: info.Size, Mode: octal(info.Mode), Truncated: info.Truncated}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WriteFile writes one file, and makes its folders.
func (f files) WriteFile(ctx context.Context, c bus.FileCall, p bus.FileWriteParams, data []byte) (*bus.FileWritten, error) {
	if most := f.w.bus.MaxFileBytes(); int64(len(data)) > most {
		return nil, endpointError(plan.ReasonContentTooLarge, fmt.Sprintf("It takes %d bytes at most.", most))
	}
	mode := fs.FileMode(0o644)
	if p.Mode != "" {
		n, err := strconv.ParseUint(p.Mode, 8, 32)
		if err != nil || n > 0o777 {
			return nil, endpointError(plan.ReasonInvalidRequest, "The mode is not octal permission bits.")
		}
		mode = fs.FileMode(n)
	}
	var out *bus.FileWritten
	q := fileAsk{action: authz.ActionFileWrite, conversation: p.ConversationID, drive: p.DriveID, path: p.Path}
	err := f.serve(ctx, c, q, func(ctx context.Context, sandbox, name string) error {
		info, err := f.w.sprites.WriteFile(ctx, sandbox, name, data, mode)
		sum := sha256.Sum256(data)
		out = &bus.FileWritten{Path: name, Size: info.Size, SHA256: hex.EncodeToString(sum[:])}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// detail is a violation as a sentence.
func detail(v *plan.Violation) string {
	return strings.ToUpper(v.Detail[:1]) + v.Detail[1:] + "."
}

func octal(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }

// fileAsk is what a file call asks for, whichever it is.
type fileAsk struct {
	action              authz.Action
	conversation, drive string
	path                string
}

// serve runs one file call between authorisation and release.
func (f files) serve(ctx context.Context, c bus.FileCall, q fileAsk, call func(ctx context.Context, sandbox, name string) error) (err error) {
	w := f.w
	start := w.now()
	ask := authz.Ask{Action: q.action, Tenant: c.Tenant, Grant: c.Header.Get(bus.HeaderGrant), BodySHA: c.Request, Conversation: q.conversation, Drive: q.drive, At: c.Received}
	actor, err := w.authz.Authorize(ctx, ask)
	rec := audit.Record{Kind: audit.KindFile, Tenant: c.Tenant, ID: "f" + randomWord(), Action: string(q.action), Conversation: q.conversation, Path: q.path, Worker: w.cfg.WorkerID}
	defer func() {
		rec.DurationMs = w.now().Sub(start).Milliseconds()
		rec.Outcome = plan.OutcomeExited
		var no *bus.EndpointError
		if errors.As(err, &no) {
			rec.Outcome, rec.Reason = fileOutcome(no.Reason), no.Reason
			rec.Anomaly = rec.Anomaly || no.Reason == plan.ReasonPathEscape
		}
		// The caller's context may have ended; what was done is recorded all the same.
		w.audit.Record(context.WithoutCancel(ctx), rec)
	}()
	if err != nil {
		var no *authz.Denied
		rec.Anomaly = errors.As(err, &no) && no.Anomaly
		return endpointError(authReason(err), "")
	}
	rec.Actor = auditActor(&bus.Actor{User: actor.User, Tier: actor.Tier, Drive: actor.Drive})
	confined, err := plan.ConfinePath("", q.path)
	var bad *plan.Violation
	if errors.As(err, &bad) {
		rec.Anomaly = bad.Anomaly
		return endpointError(bad.Reason, detail(bad))
	}
	if confined == plan.Workspace {
		return endpointError(plan.ReasonInvalidRequest, "The path names the workspace itself.")
	}
	key := session.Key{Kind: plan.KindConversation, Tenant: c.Tenant, Drive: q.drive, ID: q.conversation}
	if key.Drive == "" {
		key.Drive = actor.Drive
	}
	return f.within(ctx, actor, key, confined, call)
}

// fileOutcome tells a call that was refused from one that was allowed and did not succeed.
func fileOutcome(reason plan.Reason) plan.Outcome {
	switch reason { //nolint:exhaustive // every other reason refuses
	case plan.ReasonProvisionFailed, plan.ReasonWorkerUnavailable, plan.ReasonError, plan.ReasonNotFound, plan.ReasonRateLimited:
		return plan.OutcomeFailed
	}
	return plan.OutcomeDenied
}

// within takes the lease and readies the session's Sprite around the call.
func (f files) within(ctx context.Context, actor authz.Actor, key session.Key, name string, call func(ctx context.Context, sandbox, name string) error) error {
	w := f.w
	req := lease.Request{
		ID: actor.Tenant + ".file." + randomWord(), Owner: string(w.owner), Kind: lease.KindFile, Tenant: actor.Tenant, User: actor.User,
		Scopes: lease.Scopes(lease.KindFile, actor.Tenant, actor.User, string(actor.Tier), w.cfg.Limits),
	}
	failure := w.leases.With(ctx, req, func(ctx context.Context, _ *lease.Lease) error {
		snap, err := w.links.Load(ctx, key)
		if err != nil {
			return fmt.Errorf("load session link: %w", err)
		}
		switch snap.State() {
		case plan.LinkEnded, plan.LinkTearingDown:
			return endpointError(plan.ReasonSessionEnded, "")
		case plan.LinkNone, plan.LinkCreating:
			return endpointError(plan.ReasonNotFound, "The conversation has no sandbox yet; run a command first.")
		case plan.LinkLive:
		}
		if w.sprites == nil {
			return endpointError(plan.ReasonMisconfigured, "")
		}
		place, err := w.sprites.Inside(ctx, snap.Link.Sandbox, plan.Workspace, name)
		if err != nil {
			return err
		}
		switch place {
		case sprites.PlaceOutside:
			return endpointError(plan.ReasonPathEscape, "A symbolic link leads there.")
		case sprites.PlaceFolder:
			return endpointError(plan.ReasonInvalidRequest, "The path names a folder.")
		case sprites.PlaceSpecial:
			return endpointError(plan.ReasonInvalidRequest, "The path names no regular file.")
		case sprites.PlaceInside:
		}
		if err := call(ctx, snap.Link.Sandbox, name); err != nil {
			return err
		}
		w.touch(ctx, snap, &w.log)
		return nil
	})
	if failure != nil {
		w.log.Info().Err(failure).Str("action", "file").Msg("file call failed")
	}
	return fileFailure(failure)
}

// fileFailure gives each way to fail its own answer: only a 404 is not_found.
func fileFailure(err error) error {
	var already *bus.EndpointError
	var full *lease.Denied
	switch {
	case err == nil, errors.As(err, &already):
		return err
	case errors.As(err, &full):
		e := endpointError(plan.ReasonConcurrencyLimit, "")
		e.RetryAfter = full.RetryAfter
		return e
	case errors.Is(err, lease.ErrUnavailable), errors.Is(err, bus.ErrUnreachable):
		return endpointError(plan.ReasonWorkerUnavailable, "")
	case errors.Is(err, sprites.ErrTooLarge):
		return endpointError(plan.ReasonContentTooLarge, "")
	}
	return providerFailure(err)
}

func providerFailure(err error) error {
	var e *sprites.Error
	if errors.As(err, &e) && e.Op == sprites.OpFiles && strings.HasPrefix(e.Code, "E") && e.Class != sprites.ClassNotFound {
		// The sandbox's own word about the file (EACCES, EISDIR, ELOOP): nothing that an operator could mend.
		return endpointError(plan.ReasonInvalidRequest, "The sandbox says "+e.Code+" of this path.")
	}
	return providerAnswer(err)
}

func providerAnswer(err error) error {
	reason := plan.ReasonError
	switch sprites.ClassOf(err) {
	case sprites.ClassNotFound:
		reason = plan.ReasonNotFound
	case sprites.ClassUnauthorized:
		reason = plan.ReasonMisconfigured
	case sprites.ClassInvalid:
		reason = plan.ReasonInvalidRequest
	case sprites.ClassRateLimited, sprites.ClassConcurrentLimit:
		reason = plan.ReasonRateLimited
	case sprites.ClassTimeout, sprites.ClassUnavailable, sprites.ClassTransport:
		reason = plan.ReasonProvisionFailed
	case sprites.ClassConflict, sprites.ClassCanceled:
		reason = plan.ReasonError
	}
	e := endpointError(reason, "")
	e.RetryAfter = retryAfter(err)
	return e
}

func endpointError(reason plan.Reason, detail string) *bus.EndpointError {
	return &bus.EndpointError{Reason: reason, Message: sentence(reason, detail), Retryable: reason.Retryable()}
}

func authReason(err error) plan.Reason {
	if errors.Is(err, authz.ErrUnavailable) {
		return plan.ReasonWorkerUnavailable
	}
	return authz.ReasonOf(err)
}
