package terminal

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// checkOrigin refuses what could never equal a browser's Origin header.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.ContainsAny(origin, "*@") {
		return fmt.Errorf("origin %q is not of the form https://host[:port]", origin)
	}
	return nil
}

// allowOrigin decides before the upgrade. The library that accepts sockets would let the request's own host through,
// which a page on another port of that host shares, and a missing Origin; so it is told not to judge at all. A missing
// Origin is no browser: it passes only with a ticket in a subprotocol, which no foreign page can make a browser send.
func allowOrigin(r *http.Request, allowed []string, dev bool) bool {
	values := r.Header.Values("Origin")
	switch len(values) {
	case 0:
		return dev || ticketOf(r) != ""
	case 1:
		return slices.Contains(allowed, values[0])
	}
	return false
}
