package sprites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Proof is what a caller remembers of a Sprite's set-up. The zero Proof proves nothing.
type Proof struct {
	// Instance is the incarnation for which it holds.
	Instance string
	// Generation is the restore count at which it was made: a restore keeps the instance and may undo everything else.
	Generation int
	// PolicyHash is that of the network policy in force.
	PolicyHash string
	// SetupDone tells that the warm-up succeeded.
	SetupDone bool
	// HasBash is what the warm-up found.
	HasBash bool
}

// ProvisionRequest asks for a Sprite that is ready to run commands.
type ProvisionRequest struct {
	// Name is the Sprite's.
	Name string
	// Tenant is whose, for the gate's share of creations.
	Tenant string
	// Labels are put on a new Sprite. They grant connectors: never take them from a request.
	Labels []string
	// Egress lists the host names that may be reached: literal names or *.suffix (plan.CompileEgress). Empty
	// means none. A refused entry is an error.
	Egress []string
	// Proof is what the caller remembers.
	Proof Proof
	// Generation counts the restores of this Sprite so far. A Proof of another generation proves nothing.
	Generation int
	// Create allows a new Sprite; otherwise a missing one is ClassNotFound.
	Create bool
	// Wait lets a create wait for capacity, up to CreatePatience, instead of failing with the hint.
	Wait bool
}

// Provisioned is a Sprite that is locked down and ready.
type Provisioned struct {
	Sprite
	// Fresh tells that our own create was answered 201 in this call.
	Fresh bool
	// Adopted tells that it was meant to be created and existed (409, or a create whose answer was lost).
	Adopted bool
	// Proof is what to remember.
	Proof Proof
	// Woke is what had to be woken.
	Woke Woke
	// HasBash tells whether bash is there.
	HasBash bool
	// ClockSkew is how far its clock is off, negative when behind; 0 when not measured. A suspended VM may wake in the past.
	ClockSkew time.Duration
}

// cleanupTimeout bounds the deletion of a fresh Sprite that could not be locked down.
const cleanupTimeout = 30 * time.Second

// Provision finds or creates the Sprite, locks its network down and warms it up; what the proof covers is skipped. It
// may be repeated. Only 404 and 410 create. A fresh Sprite whose lockdown or warm-up fails is deleted and refused; any
// other is refused and kept. Besides *Error it may return ErrWorkspaceUnwritable, ErrNoInstance and ErrPolicyMismatch.
// It blocks for CreatePatience at most for the create, and on a first boot for about 70 s more.
func (c *Client) Provision(ctx context.Context, req ProvisionRequest) (Provisioned, error) {
	rules, refusedEntries := egressRules(req.Egress)
	if len(refusedEntries) > 0 {
		return Provisioned{}, fmt.Errorf("provision %s: %w", req.Name, refused(OpPolicy, "egress entries refused: %q", refusedEntries))
	}
	got, err := c.obtain(ctx, req)
	if err != nil {
		return Provisioned{}, fmt.Errorf("provision %s: %w", req.Name, err)
	}
	if err := c.makeReady(ctx, req, rules, &got); err != nil {
		if got.Fresh {
			err = errors.Join(err, c.discard(ctx, req.Name))
		}
		return Provisioned{}, fmt.Errorf("provision %s: %w", req.Name, err)
	}
	return got, nil
}

// discard deletes a fresh Sprite although the caller may have given up: left alone it would be open to the network.
func (c *Client) discard(ctx context.Context, name string) error {
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return c.Delete(dctx, name)
}

// obtain gets the Sprite, or creates it when only that is missing.
func (c *Client) obtain(ctx context.Context, req ProvisionRequest) (Provisioned, error) {
	s, err := c.Get(ctx, req.Name)
	if err == nil {
		return Provisioned{Sprite: s, Woke: wokeFrom(s.Status)}, nil
	}
	if !req.Create || ClassOf(err) != ClassNotFound {
		return Provisioned{}, err
	}
	return c.create(ctx, req)
}

type createBody struct {
	Name            string   `json:"name"`
	Config          Caps     `json:"config"`
	Labels          []string `json:"labels,omitempty"`
	WaitForCapacity bool     `json:"wait_for_capacity,omitempty"`
}

// create posts the Sprite. After a try without a clear answer, and after a 409, it reads the name back and adopts what is
// there, so that a lost answer makes neither a second Sprite nor a failure. Between tries the name is read once; what ends
// the tries is read back by Get's own rule, after them, so that neither rule multiplies the other.
func (c *Client) create(ctx context.Context, req ProvisionRequest) (Provisioned, error) {
	body, err := json.Marshal(createBody{Name: req.Name, Config: c.cfg.Caps, Labels: req.Labels, WaitForCapacity: req.Wait})
	if err != nil {
		return Provisioned{}, refused(OpCreate, "encode request: %w", err)
	}
	post := call{
		op: OpCreate, tenant: req.Tenant, method: http.MethodPost, url: c.spriteURL("", nil), body: body,
		contentType: "application/json", want: []int{http.StatusCreated}, timeout: c.cfg.CreateTimeout,
	}
	if req.Wait {
		post.timeout = c.cfg.CreatePatience
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CreatePatience) // all tries together
	defer cancel()
	var got Provisioned
	err = c.retrying(ctx, OpCreate, req.Tenant, func(ctx context.Context, _ int) error {
		var err error
		got, err = c.createOnce(ctx, req.Name, post)
		return err
	})
	switch {
	case err == nil && got.Instance == "": // answered 201 without the record, whose fields are optional
		s, gerr := c.Get(ctx, req.Name)
		if gerr != nil {
			return Provisioned{}, errors.Join(gerr, c.discard(ctx, req.Name))
		}
		got.Sprite = s
	case ClassOf(err) == ClassConflict:
		if s, gerr := c.Get(ctx, req.Name); gerr == nil {
			return adopted(s), nil
		}
	}
	return got, err
}

func adopted(s Sprite) Provisioned {
	return Provisioned{Sprite: s, Adopted: true, Woke: wokeFrom(s.Status)}
}

// createOnce posts once and, after no clear answer, looks once whether it took effect.
func (c *Client) createOnce(ctx context.Context, name string, post call) (Provisioned, error) {
	answered, err := c.once(ctx, post)
	if err == nil {
		var w wireSprite
		_ = json.Unmarshal(answered.body, &w) // read back when it says nothing
		s := w.sprite()
		if s.Name != name {
			s = Sprite{}
		}
		return Provisioned{Sprite: s, Fresh: true, Woke: WokeCold}, nil
	}
	if !slices.Contains(outage, ClassOf(err)) || ctx.Err() != nil {
		return Provisioned{}, err
	}
	if s, gerr := c.getOnce(ctx, name); gerr == nil {
		return adopted(s), nil
	}
	return Provisioned{}, err
}

// makeReady does of lockdown and warm-up what is not proven. A step that succeeded is not repeated.
func (c *Client) makeReady(ctx context.Context, req ProvisionRequest, rules []Rule, got *Provisioned) error {
	if got.Instance == "" {
		return fmt.Errorf("lock down: %w", &Error{Op: OpGet, Class: ClassInvalid, cause: ErrNoInstance})
	}
	if got.Fresh { // one budget for the whole first boot: its machine may not answer the lockdown either
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.firstBootBudget())
		defer cancel()
	}
	hash := PolicyHash(rules)
	proven := !got.Fresh && req.Proof.Instance == got.Instance && req.Proof.Generation == req.Generation
	if !proven || req.Proof.PolicyHash != hash {
		if err := c.SetPolicy(ctx, req.Name, rules); err != nil {
			return fmt.Errorf("lock down: %w", err)
		}
	}
	got.Proof = Proof{Instance: got.Instance, Generation: req.Generation, PolicyHash: hash, SetupDone: true}
	got.HasBash = req.Proof.HasBash
	if !proven || !req.Proof.SetupDone || got.Status != StatusRunning {
		w, err := c.firstWarmUp(ctx, req, got.Fresh)
		if err != nil {
			return err
		}
		got.HasBash, got.ClockSkew = w.bash, w.skew
	}
	got.Proof.HasBash = got.HasBash
	return nil
}

func (c *Client) firstBootBudget() time.Duration {
	total := time.Duration(0)
	for _, limit := range c.cfg.FirstBoot {
		total += limit
	}
	return total + 2*time.Second
}

// firstWarmUp warms a resumed Sprite up in one attempt (whose dial may be repeated), a fresh one in several, since a new
// machine may not accept commands yet: a short one, then full ones.
func (c *Client) firstWarmUp(ctx context.Context, req ProvisionRequest, fresh bool) (warmth, error) {
	if !fresh {
		return c.warmUp(ctx, req.Name, req.Tenant, c.cfg.DialTimeout, false)
	}
	var err error
	for _, limit := range c.cfg.FirstBoot {
		var w warmth
		w, err = c.warmUp(ctx, req.Name, req.Tenant, limit, true)
		if err == nil {
			return w, nil
		}
		if ctx.Err() != nil || !slices.Contains(weather, ClassOf(err)) {
			return warmth{}, err
		}
	}
	return warmth{}, fmt.Errorf("first boot, %d tries: %w", len(c.cfg.FirstBoot), err)
}
