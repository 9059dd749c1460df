package authz

import (
	"crypto/subtle"
	"slices"
)

// fits checks that the grant is for this request: tenant, session, drive, job and body. A grant that was seen once
// must open nothing else.
func (c Claims) fits(ask Ask) error {
	switch {
	case c.Issuer != IssuerWeb && (c.Issuer != IssuerOps || ask.Action != ActionEnd):
		return forged("the grant's issuer may not ask for this")
	case c.Tenant != ask.Tenant:
		return forged("the grant is for another tenant")
	case (ask.Conversation == "") == (ask.Page == ""):
		return forged("the request names no session")
	case c.Conversation != ask.Conversation || c.Page != ask.Page:
		return forged("the grant is for another session")
	case ask.Drive != "" && c.Drive != ask.Drive:
		return forged("the grant is for another drive")
	}
	if ask.Action == ActionEnd {
		return nil
	}
	if err := c.fitsJob(ask); err != nil {
		return err
	}
	if c.Request != "" && subtle.ConstantTimeCompare([]byte(c.Request), []byte(ask.BodySHA)) != 1 {
		return forged("the grant is for another body")
	}
	return nil
}

func (c Claims) fitsJob(ask Ask) error {
	bound := c.Job
	if ask.Action == ActionTerminal {
		bound = c.Open
		// A ticket is made before there is an open_id; its 30 seconds and its single use bind it.
		if bound == "" && slices.Contains(c.Audience, AudienceTerminal) {
			return nil
		}
	}
	if ask.Job != "" && bound != ask.Job {
		return forged("the grant is for another job")
	}
	return nil
}
