package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"

	"github.com/wakebus/wakebus/internal/plan"
)

// devClaims reads the header of dev mode: nothing, or bare JSON, with what is absent filled in from the request.
func devClaims(ask Ask) (Claims, error) {
	c, err := parseDevHeader(ask.Grant)
	if err != nil {
		return Claims{}, err
	}
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&c.Tenant, ask.Tenant)
	fill(&c.Subject, "dev")
	fill(&c.Verdict, VerdictAllow)
	fill(&c.Drive, ask.Drive)
	if c.Conversation == "" && c.Page == "" {
		c.Conversation, c.Page = ask.Conversation, ask.Page
	}
	if c.Tier == "" {
		c.Tier = plan.TierFree
	}
	if ask.Action == ActionReplay {
		fill(&c.Issuer, IssuerOps)
	}
	fill(&c.Issuer, IssuerWeb)
	if c.Job == "" && c.Open == "" {
		c.Job, c.Open = ask.Job, ask.Job
	}
	if err := c.shape(); err != nil {
		return Claims{}, err
	}
	return c, nil
}

func parseDevHeader(header string) (Claims, error) {
	var c Claims
	if header == "" {
		return c, nil
	}
	if len(header) > MaxToken {
		return Claims{}, forged("the grant is longer than %d bytes", MaxToken)
	}
	dec := json.NewDecoder(strings.NewReader(header))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Claims{}, forged("the grant is no JSON object of known claims")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Claims{}, forged("something follows the grant")
	}
	return c, nil
}

// CheckDev returns an error unless every address is on loopback: dev mode believes whoever asks, so nobody else may be
// able to. An address is a URL, host:port, or a comma list of them. The error names no credentials.
func CheckDev(addresses ...string) error {
	if len(addresses) == 0 {
		return errors.New("dev mode: no addresses given")
	}
	var errs []error
	for i, list := range addresses {
		for _, one := range strings.Split(list, ",") {
			if why := notLoopback(strings.TrimSpace(one)); why != "" {
				errs = append(errs, fmt.Errorf("dev mode: address %d %s", i+1, why))
			}
		}
	}
	return errors.Join(errs...)
}

func notLoopback(address string) string {
	if address == "" {
		return "is empty"
	}
	if !strings.Contains(address, "://") {
		address = "any://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return "is no URL"
	}
	if u.Scheme == "unix" && u.Host == "" {
		return ""
	}
	if !loopbackHost(u.Hostname()) {
		return fmt.Sprintf("is %s, which is not on loopback", hostOrNothing(u.Hostname()))
	}
	// Cluster and Sentinel forms name further nodes in the query.
	for key, values := range u.Query() {
		if !strings.Contains(strings.ToLower(key), "addr") && !strings.Contains(strings.ToLower(key), "host") {
			continue
		}
		for _, v := range values {
			if why := notLoopback(v); why != "" {
				return "has a further node which " + why
			}
		}
	}
	return ""
}

func hostOrNothing(host string) string {
	if host == "" {
		return "without a host"
	}
	return host
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
