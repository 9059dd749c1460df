package authz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/wakebus/wakebus/internal/plan"
)

// Caller asks the web app. It blocks until the answer or the end of the context; an error means that there was no
// answer.
type Caller interface {
	CanRunCode(ctx context.Context, question []byte) ([]byte, error)
}

const maxAnswer = 4 << 10

// question is the body of authz.can_run_code.
type question struct {
	V            int    `json:"v"`
	Action       Action `json:"action"`
	Tenant       string `json:"tenant"`
	User         string `json:"user"`
	Conversation string `json:"conversation_id,omitempty"`
	Page         string `json:"page_id,omitempty"`
	Drive        string `json:"drive_id,omitempty"`
	AgentPage    string `json:"agent_page_id,omitempty"`
	Job          string `json:"job_id,omitempty"`
}

// answer is the web app's.
type answer struct {
	Allow  *bool       `json:"allow"`
	Tier   plan.Tier   `json:"tier"`
	Reason plan.Reason `json:"reason"`
}

// call asks whether the actor may. No answer, and one that makes no sense, is ErrUnavailable: never a denial.
func (a *Authorizer) call(ctx context.Context, action Action, who Actor, job string) (Actor, error) {
	if a.cfg.Caller == nil {
		return Actor{}, &Misconfigured{What: "authorisation callout"}
	}
	body, err := json.Marshal(question{V: 1, Action: action, Tenant: who.Tenant, User: who.User,
		Conversation: who.Conversation, Page: who.Page, Drive: who.Drive, AgentPage: who.AgentPage, Job: job})
	if err != nil {
		return Actor{}, fmt.Errorf("ask authz.can_run_code: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CalloutTimeout)
	defer cancel()
	raw, err := a.cfg.Caller.CanRunCode(ctx, body)
	if err != nil {
		return Actor{}, fmt.Errorf("ask authz.can_run_code: %w: %w", ErrUnavailable, err)
	}
	said, err := parseAnswer(raw)
	if err != nil {
		return Actor{}, fmt.Errorf("ask authz.can_run_code: %w: %w", ErrUnavailable, err)
	}
	if !*said.Allow {
		return Actor{}, &Denied{Reason: verdictReason(string(said.Reason)), Detail: "the web app said no"}
	}
	if said.Tier != "" {
		who.Tier = said.Tier
	}
	return who, nil
}

func parseAnswer(raw []byte) (answer, error) {
	var said answer
	if len(raw) > maxAnswer {
		return said, fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&said); err != nil {
		return said, errors.New("the answer is not JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return said, errors.New("something follows the answer")
	}
	if said.Allow == nil {
		return said, errors.New("the answer says neither yes nor no")
	}
	if said.Tier != "" && !said.Tier.Valid() {
		return said, errors.New("the answer's tier is not known")
	}
	return said, nil
}

// verdictReason is the reason of a no. Only codes about permission may come from outside; anything else becomes
// insufficient_role.
func verdictReason(code string) plan.Reason {
	if r := plan.Reason(code); r.Valid() && r.Info().Authorization {
		return r
	}
	return plan.ReasonInsufficientRole
}
