package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// networkRule is one rule: a domain with an action, or a bundle.
type networkRule struct {
	Domain  string `json:"domain,omitempty"`
	Action  string `json:"action,omitempty"`
	Include string `json:"include,omitempty"`
}

// networkPolicy is stored and given back; the machine's network is loopback only
// whatever it says.
type networkPolicy struct {
	Rules []networkRule `json:"rules"`
}

func (p networkPolicy) validate() error {
	for i, r := range p.Rules {
		if r.Include != "" {
			if r.Domain != "" || r.Action != "" {
				return fmt.Errorf("rule %d: include excludes domain and action", i)
			}
			continue
		}
		if r.Action != "allow" && r.Action != "deny" {
			return fmt.Errorf("rule %d: action must be allow or deny", i)
		}
		name := strings.TrimPrefix(r.Domain, "*.")
		if r.Domain == "" || (r.Domain != "*" && (name == "" || strings.ContainsAny(name, "*/: \t"))) {
			return fmt.Errorf("rule %d: invalid domain %q", i, r.Domain)
		}
	}
	return nil
}

func (x *exchange) getNetwork() {
	x.sprite.mu.Lock()
	p := x.sprite.rec.Network
	x.sprite.mu.Unlock()
	if p.Rules == nil {
		p.Rules = []networkRule{}
	}
	x.json(http.StatusOK, p)
}

func (x *exchange) setNetwork() {
	var p networkPolicy
	err := x.body(&p)
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		x.text(http.StatusBadRequest, "invalid policy: %v", err)
		return
	}
	sp := x.sprite
	sp.mu.Lock()
	sp.rec.Network = p
	sp.save()
	err = sp.publishPolicy()
	sp.mu.Unlock()
	if err != nil {
		x.text(http.StatusInternalServerError, "failed to apply policy: %v", err)
		return
	}
	if x.mutated(MutatePolicyStatus) {
		x.json(http.StatusOK, p)
		return
	}
	x.w.WriteHeader(http.StatusNoContent)
}

// publishPolicy shows the policy inside, read-only, at /.sprite/policy. It needs
// the lock.
func (sp *sprite) publishPolicy() error {
	dir := filepath.Join(sp.machineFolder(), ".sprite", "policy")
	raw, err := json.Marshal(sp.rec.Network)
	return errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "network.json"), raw, 0o644))
}

var policyKinds = map[string]bool{"privileges": true, "resources": true}

func (x *exchange) policyKind() (string, bool) {
	kind := x.r.PathValue("kind")
	if !policyKinds[kind] {
		x.text(http.StatusNotFound, "unknown policy %q", kind)
	}
	return kind, policyKinds[kind]
}

func (x *exchange) getPolicy() {
	kind, ok := x.policyKind()
	if !ok {
		return
	}
	x.sprite.mu.Lock()
	raw, ok := x.sprite.rec.Policies[kind]
	x.sprite.mu.Unlock()
	if !ok {
		raw = json.RawMessage("{}")
	}
	x.json(http.StatusOK, raw)
}

func (x *exchange) setPolicy() {
	kind, ok := x.policyKind()
	if !ok {
		return
	}
	var raw map[string]any
	if err := x.body(&raw); err != nil || raw == nil {
		x.text(http.StatusBadRequest, "invalid policy")
		return
	}
	text, err := json.Marshal(raw)
	if err != nil {
		x.text(http.StatusBadRequest, "invalid policy")
		return
	}
	x.sprite.mu.Lock()
	if x.sprite.rec.Policies == nil {
		x.sprite.rec.Policies = map[string]json.RawMessage{}
	}
	x.sprite.rec.Policies[kind] = text
	x.sprite.save()
	x.sprite.mu.Unlock()
	x.w.WriteHeader(http.StatusNoContent)
}

func (x *exchange) deletePolicy() {
	kind, ok := x.policyKind()
	if !ok {
		return
	}
	x.sprite.mu.Lock()
	delete(x.sprite.rec.Policies, kind)
	x.sprite.save()
	x.sprite.mu.Unlock()
	x.w.WriteHeader(http.StatusNoContent)
}
