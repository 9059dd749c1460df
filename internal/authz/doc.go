// Package authz answers one question, may this request be served, before anything is spent on it.
//
// The kill switch comes first: either half off is off, and a setting that cannot be read is not "off" but
// misconfigured. Then, by mode: grant believes a short-lived EdDSA token that the web app signed; callout takes who
// from that token and whether from the web app's live answer; dev believes a plain header, and only where everything
// is on loopback. In every doubt the answer is no, except that nobody is told "denied" because a part of us is away:
// that is ErrUnavailable, to be asked again.
//
// Ending a session asks for less: an authentic grant. Authorisation gates use, never clean-up.
package authz
